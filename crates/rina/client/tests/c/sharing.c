/* Descriptors that several have: copies, threads, forked processes, processes that execute. */
#include <pthread.h>
#include <sys/socket.h>
#include <signal.h>
#include <sys/wait.h>

#include "check.h"

static const char *self;

static void finished_well(pid_t child)
{
    int status;

    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The flow lives as long as its last copy, and all copies read one queue. */
static void copies(void)
{
    int control = registered("copies"), ends[2], copy;
    char sdu[8];

    connected(control, "copies", NULL, ends);
    copy = dup(ends[0]);
    CHECK(copy >= 0 && rina_flow_mss_get(copy) == rina_flow_mss_get(ends[0]));
    CHECK(write(ends[1], "abcdef", 6) == 6);
    CHECK(read(copy, sdu, 2) == 2 && memcmp(sdu, "ab", 2) == 0);
    CHECK(read(ends[0], sdu, 2) == 2 && memcmp(sdu, "cd", 2) == 0);
    close(ends[0]);
    CHECK(!has(ends[1], POLLIN, 0));
    CHECK(read(copy, sdu, 8) == 2 && memcmp(sdu, "ef", 2) == 0);
    CHECK(write(copy, "x", 1) == 1 && read(ends[1], sdu, 8) == 1);
    close(copy);
    CHECK(read(ends[1], sdu, 8) == 0);
    close(ends[1]);
    close(control);
}

/* A server that forks for each flow: parent and child each close what is not theirs. */
static void a_process_for_each_flow(void)
{
    int control = registered("forking"), wait[3], i;
    pid_t child[3];

    for (i = 0; i < 3; i++) {
        int flow;

        wait[i] = asked("forking", NULL);
        flow = rina_flow_accept(control, NULL, NULL, 0);
        CHECK(flow >= 0);
        child[i] = fork();
        CHECK(child[i] >= 0);
        if (child[i] == 0) {
            char sdu[64];
            ssize_t length;

            close(control);
            while ((length = read(flow, sdu, 3)) > 0) {
                CHECK(write(flow, sdu, (size_t)length) == length);
            }
            CHECK(length == 0);
            _exit(0);
        }
        close(flow);
    }
    for (i = 0; i < 3; i++) {
        int flow = rina_flow_alloc_wait(wait[i]);
        char sdu[8];

        CHECK(flow >= 0 && write(flow, "hello", 5) == 5);
        CHECK(read(flow, sdu, 8) == 3 && memcmp(sdu, "hel", 3) == 0);
        CHECK(read(flow, sdu, 8) == 2 && memcmp(sdu, "lo", 2) == 0);
        close(flow);
        /* Later children hold copies of the descriptors of earlier flows of this process only. */
        if (i == 2) {
            close(control);
        }
    }
    for (i = 2; i >= 0; i--) {
        finished_well(child[i]);
    }
    /* No child keeps the name. */
    CHECK((control = rina_open()) >= 0);
    while (rina_register(control, NULL, "forking", 0) == -1) {
        CHECK(errno == EBUSY);
    }
    close(control);
}

/* The child uses the control descriptor while the parent lives. */
static void control_descriptor_in_a_child(void)
{
    int control = registered("shared"), ends[2];
    pid_t child = fork();
    char sdu[4];

    CHECK(child >= 0);
    if (child == 0) {
        CHECK(rina_register(control, NULL, "of the child", 0) == 0);
        ends[1] = rina_flow_accept(control, NULL, NULL, 0);
        CHECK(ends[1] >= 0 && read(ends[1], sdu, 4) == 2);
        CHECK(write(ends[1], sdu, 2) == 2 && read(ends[1], sdu, 4) == 0);
        _exit(0);
    }
    ends[0] = rina_flow_alloc(NULL, "caller", "shared", NULL, 0);
    CHECK(ends[0] >= 0 && write(ends[0], "ab", 2) == 2 && read(ends[0], sdu, 4) == 2);
    close(ends[0]);
    finished_well(child);
    /* What the child registered stays: the descriptor is one. */
    connected(control, "of the child", NULL, ends);
    close(ends[0]);
    close(ends[1]);
    close(control);
}

/*
 * Registers, becomes a daemon and serves; unregisters as well. Its parent, which called rina_open,
 * has gone.
 */
static void daemon_goes_on(void)
{
    int ends[2], told[2], control, flow;
    pid_t parent;
    char sdu[8];

    CHECK(pipe(told) == 0);
    parent = fork();
    CHECK(parent >= 0);
    if (parent == 0) {
        pid_t own = getpid();

        control = registered("daemon");
        CHECK(rina_register(control, NULL, "other name", 0) == 0);
        if (fork() != 0) {
            _exit(0);
        }
        /* Until the one who registered has gone. */
        while (getppid() == own) {
            usleep(1000);
        }
        CHECK(rina_unregister(control, NULL, "other name", 0) == 0);
        CHECK(rina_register(control, NULL, "third name", 0) == 0);
        CHECK(write(told[1], "r", 1) == 1);
        flow = rina_flow_accept(control, NULL, NULL, 0);
        CHECK(flow >= 0 && read(flow, sdu, 8) == 4 && write(flow, sdu, 4) == 4);
        CHECK(read(flow, sdu, 8) == 0);
        _exit(0);
    }
    close(told[1]);
    finished_well(parent);
    CHECK(read(told[0], sdu, 1) == 1);
    FAILS(rina_flow_alloc(NULL, "caller", "other name", NULL, 0), EPERM);
    ends[0] = rina_flow_alloc(NULL, "caller", "third name", NULL, 0);
    CHECK(ends[0] >= 0 && write(ends[0], "ping", 4) == 4 && read(ends[0], sdu, 8) == 4);
    close(ends[0]);
    /* It ends, and the names with it. */
    CHECK(read(told[0], sdu, 1) == 0);
    close(told[0]);
    CHECK((control = rina_open()) >= 0);
    while (rina_register(control, NULL, "daemon", 0) == -1) {
        CHECK(errno == EBUSY);
    }
    close(control);
}

/* A child that lives on does not keep the names of a parent that was killed. */
static void orphan_keeps_no_names(void)
{
    int told[2], stay[2], control;
    pid_t parent;
    char byte;

    CHECK(pipe(told) == 0 && pipe(stay) == 0);
    parent = fork();
    CHECK(parent >= 0);
    if (parent == 0) {
        control = registered("orphaned");
        if (fork() == 0) {
            close(control);
            close(stay[1]);
            CHECK(write(told[1], "c", 1) == 1);
            CHECK(read(stay[0], &byte, 1) == 0);
            _exit(0);
        }
        pause();
    }
    close(told[1]);
    CHECK(read(told[0], &byte, 1) == 1);
    CHECK((control = rina_open()) >= 0);
    FAILS(rina_register(control, NULL, "orphaned", 0), EBUSY);
    CHECK(kill(parent, 9) == 0 && waitpid(parent, NULL, 0) == parent);
    while (rina_register(control, NULL, "orphaned", 0) == -1) {
        CHECK(errno == EBUSY);
    }
    /* The child has been there all the time. */
    close(stay[1]);
    CHECK(read(told[0], &byte, 1) == 0);
    close(control);
    close(told[0]);
    close(stay[0]);
}

/* Descriptors are closed in a program that is executed, unless it is to have them. */
static void executed_program(void)
{
    int control = registered("executed"), ends[2], kept;
    char number[16], sdu[8];
    pid_t child;

    connected(control, "executed", NULL, ends);
    CHECK(fcntl(ends[0], F_GETFD) & FD_CLOEXEC);
    CHECK(fcntl(control, F_GETFD) & FD_CLOEXEC);
    kept = dup(ends[0]);
    CHECK(kept >= 0 && !(fcntl(kept, F_GETFD) & FD_CLOEXEC));
    snprintf(number, sizeof(number), "%d", kept);
    CHECK(write(ends[1], "abcd", 4) == 4 && read(ends[0], sdu, 1) == 1);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl(self, self, number, (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    close(kept);
    finished_well(child);
    CHECK(read(ends[1], sdu, 8) == 3 && memcmp(sdu, "bcd", 3) == 0);
    CHECK(read(ends[1], sdu, 8) == 0);
    close(ends[1]);
    close(control);
}

/* In the executed program: the descriptor is still a flow, read halfway. */
static int inherited(int flow)
{
    char sdu[8];

    CHECK(rina_flow_mss_get(flow) > 0);
    CHECK(read(flow, sdu, 1) == 1 && read(flow, sdu + 1, 7) == 2);
    CHECK(write(flow, sdu, 0) == 0 && write(flow, sdu, 3) == 3);
    return 0;
}

/* Passed to another process over a socket. */
static void passed(void)
{
    int control = registered("passed"), ends[2], pair[2], other;
    char byte = 'x', sdu[8], space[CMSG_SPACE(sizeof(int))];
    struct iovec part = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = space,
                              .msg_controllen = sizeof(space) };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    connected(control, "passed", NULL, ends);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &ends[0], sizeof(int));
    CHECK(sendmsg(pair[0], &message, 0) == 1);
    close(ends[0]);
    CHECK(recvmsg(pair[1], &message, 0) == 1 && (header = CMSG_FIRSTHDR(&message)));
    memcpy(&other, CMSG_DATA(header), sizeof(int));
    CHECK(write(ends[1], "abcd", 4) == 4);
    CHECK(read(other, sdu, 3) == 3 && read(other, sdu, 3) == 1 && sdu[0] == 'd');
    close(other);
    CHECK(read(ends[1], sdu, 3) == 0);
    close(ends[1]);
    close(pair[0]);
    close(pair[1]);
    close(control);
}

#define COUNT 20000

static void *read_all(void *flow)
{
    unsigned int n, got;

    for (n = 0; n < COUNT; n++) {
        CHECK(read(*(int *)flow, &got, sizeof(got)) == sizeof(got) && got == n);
    }
    return NULL;
}

static void *write_all(void *flow)
{
    unsigned int n;

    for (n = 0; n < COUNT; n++) {
        CHECK(write(*(int *)flow, &n, sizeof(n)) == sizeof(n));
    }
    return NULL;
}

/* A reader and a writer on each end. */
static void threads(void)
{
    struct rina_flow_spec spec = reliable();
    int control = registered("threads"), ends[2], i;
    pthread_t thread[4];

    connected(control, "threads", &spec, ends);
    for (i = 0; i < 2; i++) {
        CHECK(pthread_create(&thread[i], NULL, read_all, &ends[i]) == 0);
        CHECK(pthread_create(&thread[2 + i], NULL, write_all, &ends[i]) == 0);
    }
    for (i = 0; i < 4; i++) {
        CHECK(pthread_join(thread[i], NULL) == 0);
    }
    close(ends[0]);
    close(ends[1]);
    close(control);
}

static void *read_for_ever(void *flow)
{
    char byte;

    CHECK(read(*(int *)flow, &byte, 1) == -1);
    return NULL;
}

/* Waiting in read is a place where a thread can be cancelled. */
static void cancelled(void)
{
    int control = registered("cancelled"), ends[2];
    pthread_t thread;
    void *result;

    connected(control, "cancelled", NULL, ends);
    CHECK(pthread_create(&thread, NULL, read_for_ever, &ends[0]) == 0);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    close(ends[0]);
    close(ends[1]);
    close(control);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        return inherited(atoi(argv[1]));
    }
    self = argv[0];
    copies();
    a_process_for_each_flow();
    control_descriptor_in_a_child();
    daemon_goes_on();
    orphan_keeps_no_names();
    executed_program();
    passed();
    threads();
    cancelled();
    puts("as it should be");
    return 0;
}
