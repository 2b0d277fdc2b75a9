/*
 * Every call of rina/api.h against a running node, its answers and its errors. Says which line
 * was not as it should be and exits with 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rina/api.h>

#define CHECK(claim)                                                                       \
    do {                                                                                   \
        if (!(claim)) {                                                                    \
            fprintf(stderr, "line %d: not so: %s (errno %s)\n", __LINE__, #claim,          \
                    strerror(errno));                                                      \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

static int readable(int fd, int ms)
{
    struct pollfd ready = { .fd = fd, .events = POLLIN };

    return poll(&ready, 1, ms) == 1;
}

static int start_alloc(const char *remote)
{
    int wait = rina_flow_alloc("", "caller", remote, NULL, RINA_F_NOWAIT);

    CHECK(wait >= 0);
    return wait;
}

static void registrations(void)
{
    int control = rina_open(), other = rina_open(), wait;

    CHECK(control >= 0 && other >= 0);
    CHECK(rina_register(control, NULL, "name", 0) == 0);
    CHECK(rina_register(control, NULL, "name", 0) == 0);
    CHECK(rina_register(other, NULL, "name", 0) == -1 && errno == EBUSY);
    CHECK(rina_register(other, "no such dif", "free", 0) == -1 && errno == ENXIO);
    CHECK(rina_register(other, NULL, "", 0) == -1 && errno == EINVAL);
    CHECK(rina_register(other, NULL, NULL, 0) == -1 && errno == EINVAL);
    CHECK(rina_register(other, NULL, "free", 64) == -1 && errno == EINVAL);
    CHECK(rina_register(-1, NULL, "free", 0) == -1 && errno == EBADF);

    wait = rina_register(other, NULL, "second", RINA_F_NOWAIT);
    CHECK(wait >= 0 && readable(wait, 5000));
    CHECK(rina_register_wait(other, wait) == 0);
    CHECK(fcntl(wait, F_GETFD) == -1 && errno == EBADF);
    wait = rina_register(other, NULL, "name", RINA_F_NOWAIT);
    CHECK(wait >= 0 && readable(wait, 5000));
    CHECK(rina_register_wait(other, wait) == -1 && errno == EBUSY);

    CHECK(rina_unregister(other, NULL, "name", 0) == -1 && errno == ENXIO);
    CHECK(rina_unregister(control, NULL, "name", 0) == 0);
    while (rina_register(other, NULL, "name", 0) == -1) {
        CHECK(errno == EBUSY);
    }
    close(other);
    /* Closing unregisters. */
    while (rina_register(control, NULL, "second", 0) == -1) {
        CHECK(errno == EBUSY);
    }
    close(control);
}

static void requests(void)
{
    struct rina_flow_spec spec = { .version = 1 }, asked;
    int control = rina_open(), wait[3], handle[3], flow, i;
    char *remote = NULL;

    CHECK(control >= 0);
    CHECK(rina_register(control, NULL, "one", 0) == 0);
    CHECK(rina_register(control, NULL, "two", 0) == 0);
    CHECK(rina_flow_accept(control, NULL, &spec, 0) == -1 && errno == EINVAL);
    CHECK(fcntl(control, F_SETFL, O_NONBLOCK) == 0);
    CHECK(rina_flow_accept(control, NULL, NULL, 0) == -1 && errno == EAGAIN);
    CHECK(!readable(control, 0));

    for (i = 0; i < 3; i++) {
        wait[i] = start_alloc(i == 1 ? "two" : "one");
        CHECK(readable(control, 5000));
        spec.version = RINA_FLOW_SPEC_VERSION;
        handle[i] = rina_flow_accept(control, &remote, &spec, RINA_F_NORESP);
        CHECK(handle[i] >= 0 && strcmp(remote, "caller") == 0);
        free(remote);
        rina_flow_spec_unreliable(&asked);
        CHECK(memcmp(&asked, &spec, sizeof(spec)) == 0);
        CHECK(spec.max_sdu_gap == UINT64_MAX && spec.max_loss == 10000);
    }
    CHECK(!readable(control, 0));
    CHECK(fcntl(wait[0], F_SETFL, O_NONBLOCK) == 0);
    CHECK(rina_flow_alloc_wait(wait[0]) == -1 && errno == EAGAIN);
    CHECK(fcntl(wait[0], F_GETFD) != -1);

    /* In another order than they came. */
    CHECK(rina_flow_respond(control, handle[1], 7) == 0);
    CHECK(rina_flow_alloc_wait(wait[1]) == -1 && errno == EPERM);
    CHECK(rina_flow_respond(control, handle[1], 0) == -1 && errno == EINVAL);
    for (i = 2; i >= 0; i -= 2) {
        int mine, theirs = rina_flow_respond(control, handle[i], 0);
        char sdu[8];

        CHECK(theirs >= 0 && readable(wait[i], 5000));
        mine = rina_flow_alloc_wait(wait[i]);
        CHECK(mine >= 0);
        CHECK(write(mine, "12345678", 8) == 8 && write(mine, "abc", 3) == 3);
        CHECK(read(theirs, sdu, 4) == 4 && memcmp(sdu, "1234", 4) == 0);
        CHECK(read(theirs, sdu, 8) == 3 && memcmp(sdu, "abc", 3) == 0);
        close(mine);
        CHECK(read(theirs, sdu, 8) == 0);
        CHECK(send(theirs, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
        close(theirs);
    }
    wait[0] = start_alloc("one");
    CHECK(readable(control, 5000));
    flow = rina_flow_accept(control, NULL, NULL, 0);
    CHECK(flow >= 0);
    close(flow);
    CHECK((flow = rina_flow_alloc_wait(wait[0])) >= 0);
    close(flow);
    close(control);
}

static void sizes(void)
{
    int control = rina_open(), wait, mine, theirs;
    unsigned int mss, i;
    char *sdu, *back;

    CHECK(control >= 0 && rina_register(control, NULL, "sizes", 0) == 0);
    wait = start_alloc("sizes");
    theirs = rina_flow_accept(control, NULL, NULL, 0);
    mine = rina_flow_alloc_wait(wait);
    CHECK(mine >= 0 && theirs >= 0);
    mss = rina_flow_mss_get(mine);
    CHECK(mss >= 65536);
    sdu = calloc(1, mss + 1);
    back = calloc(1, mss + 1);
    for (i = 0; i < mss; i++) {
        sdu[i] = (char)(i * 7 + i / 251);
    }
    CHECK(write(mine, sdu, mss) == (ssize_t)mss);
    CHECK(read(theirs, back, mss + 1) == (ssize_t)mss && memcmp(sdu, back, mss) == 0);
    CHECK(write(mine, sdu, mss + 1) == -1 && errno == EMSGSIZE);
    CHECK(write(mine, sdu, 0) == 0 && readable(theirs, 5000));
    CHECK(read(theirs, back, mss) == 0);
    CHECK(write(mine, "x", 1) == 1 && read(theirs, back, mss) == 1);
    CHECK(rina_flow_mss_get(-1) == 0 && errno == EBADF);
    free(sdu);
    free(back);
    close(mine);
    close(theirs);
    close(control);
}

static void refusals(void)
{
    struct rina_flow_spec spec;

    rina_flow_spec_unreliable(&spec);
    CHECK(rina_flow_alloc(NULL, "me", "nobody", &spec, 0) == -1 && errno == EPERM);
    CHECK(rina_flow_alloc(NULL, "me", NULL, &spec, 0) == -1 && errno == EINVAL);
    CHECK(rina_flow_alloc(NULL, "me", "nobody", &spec, 2) == -1 && errno == EINVAL);
    spec.version = 1;
    CHECK(rina_flow_alloc(NULL, "me", "nobody", &spec, 0) == -1 && errno == EINVAL);
    CHECK(setenv("CARINA_RUN", "/nonexistent", 1) == 0);
    CHECK(rina_open() == -1 && errno == ENXIO);
    CHECK(rina_flow_alloc(NULL, "me", "nobody", NULL, 0) == -1 && errno == ENXIO);
}

static void on_alarm(int signal)
{
    (void)signal;
}

static void interruption(void)
{
    struct sigaction action = { .sa_handler = on_alarm };
    int control = rina_open();

    CHECK(control >= 0 && rina_register(control, NULL, "asleep", 0) == 0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    alarm(1);
    CHECK(rina_flow_accept(control, NULL, NULL, 0) == -1 && errno == EINTR);
    close(control);
}

int main(void)
{
    registrations();
    requests();
    sizes();
    interruption();
    refusals();
    puts("all calls are as they should be");
    return 0;
}
