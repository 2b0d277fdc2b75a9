/* Flows without message boundaries: writes of any length, reads of any length, the same bytes. */
#include <pthread.h>
#include <sys/uio.h>

#include "check.h"

static int control;

struct transfer {
    int flow;
    unsigned int seed;
    size_t total;
};

/* Writes the stream in stretches that grow beyond the largest SDU. */
static void *sender(void *argument)
{
    struct transfer *this = argument;
    char *bytes = filled(this->total, this->seed);
    size_t at = 0, stretch = 1;

    while (at < this->total) {
        size_t length = stretch < this->total - at ? stretch : this->total - at;

        /* A flow that waits takes all of it. */
        CHECK(write(this->flow, bytes + at, length) == (ssize_t)length);
        at += length;
        stretch = stretch * 3 + 1;
    }
    free(bytes);
    return NULL;
}

/* Reads stretches of other lengths than those written. */
static void *receiver(void *argument)
{
    struct transfer *this = argument;
    char *bytes = filled(this->total, this->seed), *got = malloc(this->total);
    size_t at = 0, stretch = 1;

    CHECK(got);
    while (at < this->total) {
        size_t room = stretch < this->total - at ? stretch : this->total - at;
        ssize_t some = read(this->flow, got + at, room);

        CHECK(some > 0 && (size_t)some <= room);
        at += (size_t)some;
        stretch = stretch * 2 % 90001 + 1;
    }
    CHECK(memcmp(got, bytes, this->total) == 0);
    free(bytes);
    free(got);
    return NULL;
}

/* One long write by another thread. */
struct long_write {
    pthread_t thread;
    int flow, count;
    const struct iovec *parts;
    size_t total;
};

static void *write_long(void *argument)
{
    struct long_write *this = argument;

    CHECK(writev(this->flow, this->parts, this->count) == (ssize_t)this->total);
    return NULL;
}

/* Reads all of a long write; no read gives more than the largest SDU. */
static void check_long(struct long_write *this, int flow, const char *bytes)
{
    char *got = malloc(this->total);
    size_t at = 0;

    CHECK(got && pthread_create(&this->thread, NULL, write_long, this) == 0);
    while (at < this->total) {
        ssize_t some = read(flow, got + at, this->total - at);

        CHECK(some > 0 && some <= (ssize_t)rina_flow_mss_get(flow));
        at += (size_t)some;
    }
    CHECK(memcmp(bytes, got, this->total) == 0);
    CHECK(pthread_join(this->thread, NULL) == 0);
    free(got);
}

static void both_directions_at_once(void)
{
    struct rina_flow_spec spec = stream();
    struct transfer there[2], back[2];
    pthread_t threads[4];
    int ends[2], i;

    connected(control, "stream", &spec, ends);
    for (i = 0; i < 2; i++) {
        there[i].flow = ends[i];
        there[i].seed = 5;
        there[i].total = 3000001;
        back[i].flow = ends[1 - i];
        back[i].seed = 9;
        back[i].total = 2000003;
    }
    CHECK(pthread_create(&threads[0], NULL, sender, &there[0]) == 0);
    CHECK(pthread_create(&threads[1], NULL, receiver, &there[1]) == 0);
    CHECK(pthread_create(&threads[2], NULL, sender, &back[0]) == 0);
    CHECK(pthread_create(&threads[3], NULL, receiver, &back[1]) == 0);
    for (i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    /* And the end after all. */
    CHECK(write(ends[0], "last", 4) == 4);
    close(ends[0]);
    CHECK(read(ends[1], there, 3) == 3 && read(ends[1], there, 3) == 1);
    CHECK(read(ends[1], there, 3) == 0);
    close(ends[1]);
}

static void stream_is_asked_for(void)
{
    struct rina_flow_spec spec = stream(), seen = { .version = RINA_FLOW_SPEC_VERSION };
    int wait = asked("stream", &spec), ends[2];

    ends[1] = rina_flow_accept(control, NULL, &seen, 0);
    CHECK(ends[1] >= 0 && seen.msg_boundaries == 0);
    CHECK((ends[0] = rina_flow_alloc_wait(wait)) >= 0);
    close(ends[0]);
    close(ends[1]);
}

/* One write above the largest SDU comes as reads of at most the largest SDU. */
static void long_write_is_split(void)
{
    struct rina_flow_spec spec = stream();
    struct long_write this = { .count = 1 };
    struct iovec part;
    int ends[2];
    char *bytes;

    connected(control, "stream", &spec, ends);
    this.flow = ends[0];
    this.total = part.iov_len = 2 * (size_t)rina_flow_mss_get(ends[0]) + 17;
    part.iov_base = bytes = filled(this.total, 3);
    this.parts = &part;
    check_long(&this, ends[1], bytes);
    CHECK(write(ends[0], bytes, 0) == 0);
    make_nonblocking(ends[1]);
    FAILS(read(ends[1], bytes, 1), EAGAIN);
    free(bytes);
    close(ends[0]);
    close(ends[1]);
}

/* A write that does not wait takes what there is room for, and says how much that was. */
static void part_of_a_write(void)
{
    struct rina_flow_spec spec = stream();
    const size_t total = 4000000;
    char *bytes = filled(total, 4), *got = malloc(total);
    size_t sent = 0, at = 0;
    int ends[2];

    connected(control, "stream", &spec, ends);
    make_nonblocking(ends[0]);
    make_nonblocking(ends[1]);
    CHECK(got);
    while (at < total) {
        ssize_t some;

        if (sent < total && has(ends[0], POLLOUT, 0)) {
            some = write(ends[0], bytes + sent, total - sent);
            CHECK(some > 0);
            sent += (size_t)some;
            CHECK(sent < total || at > 0);
        }
        while ((some = read(ends[1], got + at, 50000 < total - at ? 50000 : total - at)) > 0) {
            at += (size_t)some;
        }
        CHECK(some == 0 ? at == total : errno == EAGAIN);
        CHECK(at <= sent);
    }
    CHECK(memcmp(bytes, got, total) == 0);
    free(bytes);
    free(got);
    close(ends[0]);
    close(ends[1]);
}

/* Many small parts, empty ones among them, and one large one. */
static void gathered(void)
{
    struct rina_flow_spec spec = stream();
    struct long_write this = { .count = 100 };
    struct iovec parts[100];
    int ends[2], i;
    size_t at = 0;
    char *bytes;

    connected(control, "stream", &spec, ends);
    for (i = 0; i < 100; i++) {
        parts[i].iov_len = i == 50 ? rina_flow_mss_get(ends[0]) + 1 : (size_t)(i % 4);
        this.total += parts[i].iov_len;
    }
    bytes = filled(this.total, 6);
    for (i = 0; i < 100; i++) {
        parts[i].iov_base = bytes + at;
        at += parts[i].iov_len;
    }
    this.flow = ends[0];
    this.parts = parts;
    check_long(&this, ends[1], bytes);
    free(bytes);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    control = registered("stream");
    stream_is_asked_for();
    long_write_is_split();
    part_of_a_write();
    gathered();
    both_directions_at_once();
    close(control);
    puts("as it should be");
    return 0;
}
