/*
 * Measures libxenvchan, a stream of bytes between two domains of Xen.
 *
 *   carina-vchan serve PATH           in a domain: serves Dom0 at PATH of the domain's xenstore
 *   carina-vchan measure DOMAIN PATH  in Dom0: PATH is that of the xenstore, from the root
 *
 * `measure` reads jobs from standard input, one a line: DIRECTION SIZE MILLISECONDS, where the
 * direction is 0 (Dom0 sends), 1 (the domain sends) or 2 (echo). It answers each with a line of
 * seven numbers: messages and bytes received after the first, nanoseconds between the first and the
 * last, processor time of both sides in nanoseconds, and for an echo mean, median and 99th
 * percentile of the round trips in microseconds.
 *
 * A message is its length, four bytes, and its bytes. Both sides sleep while the stream is full or
 * empty, as libxenvchan is meant to be used.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct libxenvchan;
struct libxenvchan *libxenvchan_server_init(void *logger, int domain, const char *path,
                                            size_t left_min, size_t right_min);
struct libxenvchan *libxenvchan_client_init(void *logger, int domain, const char *path);
int libxenvchan_read(struct libxenvchan *ctrl, void *data, size_t size);
int libxenvchan_write(struct libxenvchan *ctrl, const void *data, size_t size);
int libxenvchan_wait(struct libxenvchan *ctrl);
void libxenvchan_close(struct libxenvchan *ctrl);

enum { RING_BYTES = 256 << 10, MESSAGE_MAX = 64 << 10, TRIPS_MAX = 1 << 20 };

struct job { uint32_t direction, size, milliseconds, reserved; };
struct report { uint64_t messages, bytes, nanoseconds, cpu; };

static char message[MESSAGE_MAX + 4];
static char buffer[RING_BYTES];
static double trips[TRIPS_MAX];

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "carina-vchan: %s\n", what);
    exit(1);
}

/* Sends all bytes; returns 0 when the other side has closed. */
static int send_all(struct libxenvchan *ctrl, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        int sent = libxenvchan_write(ctrl, at, size);
        if (sent < 0 || (sent == 0 && libxenvchan_wait(ctrl) < 0))
            return 0;
        at += sent;
        size -= (size_t)sent;
    }
    return 1;
}

/* Receives up to `size` bytes, at least one; returns 0 when the other side has closed. */
static size_t receive_some(struct libxenvchan *ctrl, void *data, size_t size)
{
    for (;;) {
        int got = libxenvchan_read(ctrl, data, size);
        if (got > 0)
            return (size_t)got;
        if (got < 0 || libxenvchan_wait(ctrl) < 0)
            return 0;
    }
}

static int receive_all(struct libxenvchan *ctrl, void *data, size_t size)
{
    char *at = data;
    while (size > 0) {
        size_t got = receive_some(ctrl, at, size);
        if (got == 0)
            return 0;
        at += got;
        size -= got;
    }
    return 1;
}

static void set_length(uint32_t length)
{
    memcpy(message, &length, sizeof length);
}

/* Sends messages until the time is over, then one with the length UINT32_MAX, which ends them. */
static int send_for(struct libxenvchan *ctrl, const struct job *job)
{
    uint64_t end = clock_ns(CLOCK_MONOTONIC) + job->milliseconds * UINT64_C(1000000);
    set_length(job->size);
    while (clock_ns(CLOCK_MONOTONIC) < end)
        if (!send_all(ctrl, message, job->size + 4))
            return 0;
    set_length(UINT32_MAX);
    return send_all(ctrl, message, 4);
}

/* Receives messages up to the end. All have the same size, so that they are counted by bytes. */
static int receive_counted(struct libxenvchan *ctrl, const struct job *job, struct report *report)
{
    uint64_t total = 0, first = 0, first_ns = 0, last_ns = 0;
    uint64_t each = job->size + 4;
    char tail[4] = { 0 };
    for (;;) {
        size_t got = receive_some(ctrl, buffer, sizeof buffer);
        if (got == 0)
            return 0;
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        total += got;
        size_t new = got < sizeof tail ? got : sizeof tail;
        memmove(tail, tail + new, sizeof tail - new);
        memcpy(tail + sizeof tail - new, buffer + got - new, new);
        /* Nothing follows the mark of the end: this side sends next. */
        uint32_t length;
        memcpy(&length, tail, sizeof length);
        if (total % each == 4 % each && length == UINT32_MAX)
            break;
        if (first == 0) {
            first = total;
            first_ns = now;
        }
        last_ns = now;
    }
    uint64_t after = total - 4 > first ? total - 4 - first : 0;
    report->messages = after / each;
    report->bytes = report->messages * job->size;
    report->nanoseconds = last_ns - first_ns;
    return 1;
}

static int echo(struct libxenvchan *ctrl)
{
    uint32_t length;
    for (;;) {
        if (!receive_all(ctrl, &length, sizeof length))
            return 0;
        if (length == UINT32_MAX)
            return 1;
        if (length > MESSAGE_MAX || !receive_all(ctrl, message + 4, length))
            return 0;
        set_length(length);
        if (!send_all(ctrl, message, length + 4))
            return 0;
    }
}

static int by_value(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static size_t ping(struct libxenvchan *ctrl, const struct job *job)
{
    size_t count = 0;
    uint64_t start = clock_ns(CLOCK_MONOTONIC);
    uint64_t end = start + job->milliseconds * UINT64_C(1000000);
    while (start < end && count < TRIPS_MAX) {
        set_length(job->size);
        if (!send_all(ctrl, message, job->size + 4) ||
            !receive_all(ctrl, buffer, job->size + 4))
            fail("the domain has closed the stream");
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        trips[count++] = (double)(now - start) / 1000;
        start = now;
    }
    set_length(UINT32_MAX);
    if (!send_all(ctrl, message, 4))
        fail("the domain has closed the stream");
    qsort(trips, count, sizeof trips[0], by_value);
    return count;
}

static int serve_job(struct libxenvchan *ctrl)
{
    struct job job;
    struct report report = { 0 };
    if (!receive_all(ctrl, &job, sizeof job) || job.size > MESSAGE_MAX)
        return 0;
    uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    int ended = job.direction == 0 ? receive_counted(ctrl, &job, &report)
              : job.direction == 1 ? send_for(ctrl, &job) : echo(ctrl);
    report.cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (ended && job.direction == 1) {
        /* The receiver asks for the report, so that nothing follows the mark of the end. */
        uint32_t asked;
        ended = receive_all(ctrl, &asked, sizeof asked);
    }
    return ended && send_all(ctrl, &report, sizeof report);
}

static void serve(const char *path)
{
    for (;;) {
        struct libxenvchan *ctrl =
            libxenvchan_server_init(NULL, 0, path, RING_BYTES, RING_BYTES);
        if (ctrl == NULL)
            fail("no stream can be offered to Dom0");
        while (serve_job(ctrl))
            ;
        libxenvchan_close(ctrl);
        sleep(1);
    }
}

static void measure(int domain, const char *path)
{
    struct libxenvchan *ctrl = NULL;
    for (int tries = 0; ctrl == NULL && tries < 100; tries++) {
        ctrl = libxenvchan_client_init(NULL, domain, path);
        if (ctrl == NULL)
            usleep(200000);
    }
    if (ctrl == NULL)
        fail("the domain offers no stream");
    struct job job = { 0 };
    while (scanf("%u %u %u", &job.direction, &job.size, &job.milliseconds) == 3) {
        struct report mine = { 0 }, theirs;
        double sum = 0;
        size_t count = 0;
        if (job.size > MESSAGE_MAX)
            fail("a message is too long");
        uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        if (!send_all(ctrl, &job, sizeof job))
            fail("the domain has closed the stream");
        if (job.direction == 0)
            send_for(ctrl, &job);
        else if (job.direction == 1)
            receive_counted(ctrl, &job, &mine);
        else
            count = ping(ctrl, &job);
        if ((job.direction == 1 && !send_all(ctrl, &job.reserved, sizeof job.reserved)) ||
            !receive_all(ctrl, &theirs, sizeof theirs))
            fail("the domain sent no report");
        cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu + theirs.cpu;
        struct report *seen = job.direction == 0 ? &theirs : &mine;
        for (size_t number = 0; number < count; number++)
            sum += trips[number];
        if (job.direction == 2)
            seen->messages = count;
        printf("%llu %llu %llu %llu %.1f %.1f %.1f\n", (unsigned long long)seen->messages,
               (unsigned long long)seen->bytes, (unsigned long long)seen->nanoseconds,
               (unsigned long long)cpu, count ? sum / (double)count : 0,
               count ? trips[count / 2] : 0, count ? trips[count - 1 - count / 100] : 0);
        fflush(stdout);
    }
    libxenvchan_close(ctrl);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        serve(argv[2]);
    else if (argc == 4 && strcmp(argv[1], "measure") == 0)
        measure(atoi(argv[2]), argv[3]);
    else
        fail("usage: carina-vchan serve PATH | measure DOMAIN PATH");
    return 0;
}
