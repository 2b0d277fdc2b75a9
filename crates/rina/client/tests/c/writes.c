/* Writing: whole SDUs up to the largest, waiting for space, the end of the flow. */
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>

#include "check.h"

static int control;

static void sizes(void)
{
    int ends[2];
    unsigned int mss, size;

    connected(control, "writes", NULL, ends);
    mss = rina_flow_mss_get(ends[0]);
    for (size = mss; size > 0; size /= 3) {
        char *sdu = filled(size, size), *back = malloc(mss + 1);

        CHECK(back && write(ends[0], sdu, size) == (ssize_t)size);
        CHECK(read(ends[1], back, mss + 1) == (ssize_t)size && memcmp(sdu, back, size) == 0);
        free(sdu);
        free(back);
    }
    close(ends[0]);
    close(ends[1]);
}

static void too_long(void)
{
    int ends[2];
    unsigned int mss;
    struct iovec parts[2];
    volatile int negative = -1;
    char *sdu;

    connected(control, "writes", NULL, ends);
    mss = rina_flow_mss_get(ends[0]);
    sdu = filled(mss + 1, 1);
    FAILS(write(ends[0], sdu, mss + 1), EMSGSIZE);
    parts[0].iov_base = parts[1].iov_base = sdu;
    parts[0].iov_len = mss;
    parts[1].iov_len = 1;
    FAILS(writev(ends[0], parts, 2), EMSGSIZE);
    FAILS(writev(ends[0], parts, negative), EINVAL);
    /* The flow is none the worse for it. */
    CHECK(write(ends[0], "x", 1) == 1 && read(ends[1], sdu, mss) == 1);
    parts[0].iov_len = mss - 1;
    CHECK(writev(ends[0], parts, 2) == (ssize_t)mss && read(ends[1], sdu, mss) == (ssize_t)mss);
    free(sdu);
    close(ends[0]);
    close(ends[1]);
}

static void nothing(void)
{
    int ends[2];
    char sdu[4];
    struct iovec part = { .iov_base = sdu, .iov_len = 0 };

    connected(control, "writes", NULL, ends);
    make_nonblocking(ends[1]);
    CHECK(write(ends[0], sdu, 0) == 0 && write(ends[0], NULL, 0) == 0);
    CHECK(writev(ends[0], &part, 1) == 0 && writev(ends[0], &part, 0) == 0);
    CHECK(!has(ends[1], POLLIN, 0));
    FAILS(read(ends[1], sdu, sizeof(sdu)), EAGAIN);
    CHECK(write(ends[0], "abc", 3) == 3 && read(ends[1], sdu, sizeof(sdu)) == 3);
    close(ends[0]);
    close(ends[1]);
}

#define SDU 1000

/* Fills the flow until it takes no more; gives the number of SDUs. */
static unsigned int filled_up(int flow)
{
    char *sdu = malloc(SDU);
    unsigned int count = 0;

    CHECK(sdu);
    make_nonblocking(flow);
    for (;;) {
        fill(sdu, SDU, count);
        if (write(flow, sdu, SDU) == -1) {
            break;
        }
        count++;
        CHECK(count < 1000000);
    }
    CHECK(errno == EAGAIN && count > 0);
    CHECK(!has(flow, POLLOUT, 0));
    free(sdu);
    return count;
}

static void check_next(int flow, unsigned int number)
{
    char sdu[SDU + 1], expected[SDU];

    fill(expected, SDU, number);
    CHECK(read(flow, sdu, sizeof(sdu)) == SDU && memcmp(sdu, expected, SDU) == 0);
}

static void space(void)
{
    struct rina_flow_spec spec = reliable();
    unsigned int sent, i = 0;
    int ends[2];
    char sdu[SDU];

    connected(control, "writes", &spec, ends);
    CHECK(has(ends[0], POLLOUT, 0));
    sent = filled_up(ends[0]);
    while (!has(ends[0], POLLOUT, 0)) {
        CHECK(i < sent);
        check_next(ends[1], i++);
    }
    /* When poll says so, a write does not wait. */
    fill(sdu, SDU, sent++);
    CHECK(write(ends[0], sdu, SDU) == SDU);
    while (i < sent) {
        check_next(ends[1], i++);
    }
    close(ends[0]);
    close(ends[1]);
}

struct writer {
    int flow;
    unsigned int from, to;
};

static void *writer(void *argument)
{
    struct writer *this = argument;
    char sdu[SDU];

    for (; this->from < this->to; this->from++) {
        fill(sdu, SDU, this->from);
        CHECK(write(this->flow, sdu, SDU) == SDU);
    }
    return NULL;
}

/* A write that blocks goes on when the reader has made space. */
static void waiting_for_space(void)
{
    struct rina_flow_spec spec = reliable();
    struct writer this;
    pthread_t thread;
    unsigned int i;
    int ends[2];

    connected(control, "writes", &spec, ends);
    this.flow = ends[0];
    this.from = filled_up(ends[0]);
    this.to = this.from + 500;
    make_blocking(ends[0]);
    CHECK(pthread_create(&thread, NULL, writer, &this) == 0);
    for (i = 0; i < this.to; i++) {
        check_next(ends[1], i);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    close(ends[0]);
    close(ends[1]);
}

/* No signal, whatever is done with SIGPIPE. */
static void after_the_end(void)
{
    struct iovec part = { .iov_base = (char[]){ 'x' }, .iov_len = 1 };
    int ends[2];

    signal(SIGPIPE, SIG_DFL);
    connected(control, "writes", NULL, ends);
    CHECK(write(ends[0], "unread", 6) == 6);
    close(ends[1]);
    CHECK(has(ends[0], POLLHUP, LONG_MS));
    FAILS(write(ends[0], "x", 1), EPIPE);
    FAILS(write(ends[0], "x", 1), EPIPE);
    FAILS(writev(ends[0], &part, 1), EPIPE);
    close(ends[0]);
}

/* A last word is accepted as long as there is an answer to read. */
static void last_word(void)
{
    int ends[2], i;
    char answer[16];

    connected(control, "writes", NULL, ends);
    CHECK(write(ends[0], "unread", 6) == 6);
    CHECK(write(ends[1], "answer", 6) == 6 && write(ends[1], "more", 4) == 4);
    close(ends[1]);
    CHECK(has(ends[0], POLLHUP, LONG_MS));
    for (i = 0; i < 3; i++) {
        CHECK(write(ends[0], "stop", 4) == 4);
    }
    CHECK(read(ends[0], answer, 2) == 2 && memcmp(answer, "an", 2) == 0);
    CHECK(write(ends[0], "stop", 4) == 4);
    CHECK(read(ends[0], answer, sizeof(answer)) == 4 && memcmp(answer, "swer", 4) == 0);
    CHECK(write(ends[0], "stop", 4) == 4);
    CHECK(read(ends[0], answer, sizeof(answer)) == 4 && memcmp(answer, "more", 4) == 0);
    FAILS(write(ends[0], "stop", 4), EPIPE);
    CHECK(read(ends[0], answer, sizeof(answer)) == 0);
    close(ends[0]);
}

/* A writer that waits learns of the end. */
static void end_while_waiting(void)
{
    struct rina_flow_spec spec = reliable();
    int ends[2];
    pid_t closer;

    connected(control, "writes", &spec, ends);
    filled_up(ends[0]);
    make_blocking(ends[0]);
    closer = fork();
    CHECK(closer >= 0);
    if (closer == 0) {
        /* Ends, and with it the other end of the flow, some time while the parent writes. */
        _exit(0);
    }
    close(ends[1]);
    for (;;) {
        if (write(ends[0], "x", 1) == -1) {
            CHECK(errno == EPIPE);
            break;
        }
    }
    close(ends[0]);
}

int main(void)
{
    control = registered("writes");
    sizes();
    too_long();
    nothing();
    space();
    waiting_for_space();
    after_the_end();
    last_word();
    end_while_waiting();
    close(control);
    puts("as it should be");
    return 0;
}
