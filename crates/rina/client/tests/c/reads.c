/* Reading: at most one SDU, what did not fit stays, the end comes last. */
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "check.h"

static int control;

static void one_sdu_and_the_rest_of_it(void)
{
    int ends[2];
    char sdu[100];

    connected(control, "reads", NULL, ends);
    CHECK(write(ends[0], "abcdefgh", 8) == 8 && write(ends[0], "xyz", 3) == 3);
    CHECK(read(ends[1], sdu, 3) == 3 && memcmp(sdu, "abc", 3) == 0);
    CHECK(has(ends[1], POLLIN, 0));
    CHECK(read(ends[1], sdu, 3) == 3 && memcmp(sdu, "def", 3) == 0);
    /* The rest of one is never joined with the next. */
    CHECK(read(ends[1], sdu, sizeof(sdu)) == 2 && memcmp(sdu, "gh", 2) == 0);
    CHECK(read(ends[1], sdu, sizeof(sdu)) == 3 && memcmp(sdu, "xyz", 3) == 0);
    make_nonblocking(ends[1]);
    CHECK(!has(ends[1], POLLIN, 0));
    FAILS(read(ends[1], sdu, sizeof(sdu)), EAGAIN);
    /* Exactly to the end of an SDU: nothing is left of it. */
    CHECK(write(ends[0], "1234", 4) == 4);
    CHECK(read(ends[1], sdu, 2) == 2 && read(ends[1], sdu, 2) == 2 && memcmp(sdu, "34", 2) == 0);
    CHECK(!has(ends[1], POLLIN, 0));
    FAILS(read(ends[1], sdu, 1), EAGAIN);
    /* Reading no bytes is not waiting for any. */
    CHECK(write(ends[0], "1", 1) == 1 && read(ends[1], sdu, 0) == 0);
    CHECK(read(ends[1], sdu, 1) == 1 && sdu[0] == '1');
    close(ends[0]);
    close(ends[1]);
}

/* A program that knows its format reads a header, then what the header says. */
static void bit_by_bit(void)
{
    struct rina_flow_spec spec = reliable();
    unsigned int length;
    int ends[2];

    connected(control, "reads", &spec, ends);
    for (length = 1; length < 3000; length = length * 2 + 1) {
        char *body = filled(length, length), *got = malloc(length);
        struct iovec parts[2];
        unsigned int said, at = 0;

        parts[0].iov_base = &length;
        parts[0].iov_len = sizeof(length);
        parts[1].iov_base = body;
        parts[1].iov_len = length;
        CHECK(got && writev(ends[0], parts, 2) == (ssize_t)(sizeof(length) + length));
        CHECK(read(ends[1], &said, sizeof(said)) == sizeof(said) && said == length);
        while (at < length) {
            ssize_t some = read(ends[1], got + at, length - at < 7 ? length - at : 7);

            CHECK(some > 0);
            at += (unsigned int)some;
        }
        CHECK(memcmp(got, body, length) == 0);
        free(body);
        free(got);
    }
    make_nonblocking(ends[1]);
    FAILS(read(ends[1], &length, 1), EAGAIN);
    close(ends[0]);
    close(ends[1]);
}

static void scattered(void)
{
    char head[3], tail[10];
    volatile int negative = -1;
    struct iovec parts[2];
    int ends[2];

    parts[0].iov_base = head;
    parts[0].iov_len = sizeof(head);
    parts[1].iov_base = tail;
    parts[1].iov_len = sizeof(tail);
    connected(control, "reads", NULL, ends);
    CHECK(write(ends[0], "abcdefgh", 8) == 8 && write(ends[0], "12345", 5) == 5);
    CHECK(readv(ends[1], parts, 2) == 8);
    CHECK(memcmp(head, "abc", 3) == 0 && memcmp(tail, "defgh", 5) == 0);
    parts[1].iov_len = 1;
    CHECK(readv(ends[1], parts, 2) == 4 && memcmp(head, "123", 3) == 0 && tail[0] == '4');
    CHECK(readv(ends[1], parts, 2) == 1 && head[0] == '5');
    FAILS(readv(ends[1], parts, negative), EINVAL);
    CHECK(readv(ends[1], parts, 0) == 0);
    close(ends[0]);
    close(ends[1]);
}

static void end_comes_after_what_was_sent(void)
{
    int ends[2], i;
    char sdu[4];

    connected(control, "reads", NULL, ends);
    for (i = 0; i < 10; i++) {
        CHECK(write(ends[0], "abcd", 4) == 4);
    }
    /* What the other end left unread does not spoil what it sent. */
    CHECK(write(ends[1], "unread", 6) == 6);
    close(ends[0]);
    for (i = 0; i < 10; i++) {
        CHECK(has(ends[1], POLLIN, LONG_MS));
        CHECK(read(ends[1], sdu, 1) == 1 && sdu[0] == 'a');
        CHECK(read(ends[1], sdu, sizeof(sdu)) == 3 && memcmp(sdu, "bcd", 3) == 0);
    }
    CHECK(has(ends[1], POLLIN, LONG_MS));
    CHECK(read(ends[1], sdu, sizeof(sdu)) == 0);
    CHECK(read(ends[1], sdu, sizeof(sdu)) == 0);
    CHECK(has(ends[1], POLLIN, LONG_MS));
    make_nonblocking(ends[1]);
    CHECK(read(ends[1], sdu, 1) == 0);
    close(ends[1]);
}

/* SDUs without bytes, which programs of another kind can send, are not the end. */
static void empty_sdus(void)
{
    int ends[2];
    char sdu[4];

    connected(control, "reads", NULL, ends);
    CHECK(send(ends[0], "", 0, 0) == 0 && send(ends[0], "", 0, 0) == 0);
    CHECK(write(ends[0], "ab", 2) == 2 && send(ends[0], "", 0, 0) == 0);
    CHECK(read(ends[1], sdu, 1) == 1 && sdu[0] == 'a');
    CHECK(read(ends[1], sdu, sizeof(sdu)) == 1 && sdu[0] == 'b');
    make_nonblocking(ends[1]);
    FAILS(read(ends[1], sdu, sizeof(sdu)), EAGAIN);
    CHECK(send(ends[0], "", 0, 0) == 0 && write(ends[0], "cd", 2) == 2);
    CHECK(send(ends[0], "", 0, 0) == 0);
    close(ends[0]);
    CHECK(has(ends[1], POLLHUP, LONG_MS));
    CHECK(read(ends[1], sdu, sizeof(sdu)) == 2 && memcmp(sdu, "cd", 2) == 0);
    CHECK(read(ends[1], sdu, sizeof(sdu)) == 0);
    close(ends[1]);
}

#define RECORDS 3000
#define READERS 3

static unsigned char seen[RECORDS];

/* Reads records of eight bytes in two halves; which halves it gets is not its choice. */
static void *reader(void *flow)
{
    unsigned int half[1];

    while (read(*(int *)flow, half, sizeof(half)) == sizeof(half)) {
        CHECK(half[0] < RECORDS);
        __atomic_add_fetch(&seen[half[0]], 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Several threads read from one flow: nothing is lost and nothing comes twice. */
static void several_readers(void)
{
    struct rina_flow_spec spec = reliable();
    pthread_t threads[READERS];
    unsigned int i;
    int ends[2];

    connected(control, "reads", &spec, ends);
    for (i = 0; i < READERS; i++) {
        CHECK(pthread_create(&threads[i], NULL, reader, &ends[1]) == 0);
    }
    for (i = 0; i < RECORDS; i++) {
        unsigned int record[2];

        record[0] = record[1] = i;
        CHECK(write(ends[0], record, sizeof(record)) == sizeof(record));
    }
    close(ends[0]);
    for (i = 0; i < READERS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (i = 0; i < RECORDS; i++) {
        CHECK(seen[i] == 2);
    }
    close(ends[1]);
}

/* Descriptors that are no flows are read as ever. */
static void other_descriptors(void)
{
    int end[2], pair[2];
    char bytes[8];
    struct iovec part;

    CHECK(pipe(end) == 0);
    CHECK(write(end[1], "abcdef", 6) == 6 && write(end[1], "g", 1) == 1);
    CHECK(read(end[0], bytes, 2) == 2 && read(end[0], bytes, 8) == 5);
    part.iov_base = bytes;
    part.iov_len = 3;
    CHECK(writev(end[1], &part, 1) == 3 && readv(end[0], &part, 1) == 3);
    CHECK(write(end[1], "", 0) == 0);
    close(end[1]);
    CHECK(read(end[0], bytes, 8) == 0);
    close(end[0]);
    FAILS(read(end[0], bytes, 8), EBADF);
    FAILS(write(-1, bytes, 8), EBADF);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    CHECK(write(pair[0], "abc", 3) == 3 && read(pair[1], bytes, 1) == 1);
    FAILS(recv(pair[1], bytes, 1, MSG_DONTWAIT), EAGAIN);
    errno = 42;
    CHECK(write(pair[0], "abc", 3) == 3 && read(pair[1], bytes, 3) == 3 && errno == 42);
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    control = registered("reads");
    one_sdu_and_the_rest_of_it();
    bit_by_bit();
    scattered();
    end_comes_after_what_was_sent();
    empty_sdus();
    several_readers();
    other_descriptors();
    close(control);
    puts("as it should be");
    return 0;
}
