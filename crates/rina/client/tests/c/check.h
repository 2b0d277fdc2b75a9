/* What the test programs share: a claim that must hold, and both ends of a flow in one process. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rina/api.h>

#define CHECK(claim)                                                                       \
    do {                                                                                   \
        if (!(claim)) {                                                                    \
            fprintf(stderr, "%s line %d: not so: %s (errno %s)\n", __FILE__, __LINE__,     \
                    #claim, strerror(errno));                                              \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

/* A call fails and says why. */
#define FAILS(call, why) CHECK((call) == -1 && errno == (why))

/* Longer than any wait that ends by itself. */
#define LONG_MS 120000

/*
 * That the other end has closed is news that travels: the node lets go of an end a moment after it
 * has given it to its owner. Wait for it before a call that does not.
 */
static inline int has(int fd, short events, int ms)
{
    struct pollfd ready = { .fd = fd, .events = events };

    return poll(&ready, 1, ms) == 1 && (ready.revents & events) == events;
}

static inline void make_nonblocking(int fd)
{
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

static inline void make_blocking(int fd)
{
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0);
}

static inline int is_open(int fd)
{
    return fcntl(fd, F_GETFD) != -1;
}

/* A control descriptor with one name. */
static inline int registered(const char *name)
{
    int control = rina_open();

    CHECK(control >= 0);
    CHECK(rina_register(control, NULL, name, 0) == 0);
    return control;
}

/* Asks for a flow and returns at once. */
static inline int asked(const char *name, const struct rina_flow_spec *spec)
{
    int wait = rina_flow_alloc(NULL, "caller", name, spec, RINA_F_NOWAIT);

    CHECK(wait >= 0);
    return wait;
}

/* Both ends of a flow. */
static inline void connected(int control, const char *name, const struct rina_flow_spec *spec,
                             int ends[2])
{
    int wait = asked(name, spec);

    ends[1] = rina_flow_accept(control, NULL, NULL, 0);
    CHECK(ends[1] >= 0);
    ends[0] = rina_flow_alloc_wait(wait);
    CHECK(ends[0] >= 0);
}

static inline struct rina_flow_spec reliable(void)
{
    struct rina_flow_spec spec;

    rina_flow_spec_unreliable(&spec);
    spec.max_sdu_gap = 0;
    spec.max_loss = 0;
    spec.in_order_delivery = 1;
    return spec;
}

static inline struct rina_flow_spec stream(void)
{
    struct rina_flow_spec spec = reliable();

    spec.msg_boundaries = 0;
    return spec;
}

/* Bytes that tell where they belong. */
static inline void fill(char *bytes, size_t size, unsigned int seed)
{
    size_t i;

    for (i = 0; i < size; i++) {
        bytes[i] = (char)(seed * 31 + i * 7 + i / 251);
    }
}

static inline char *filled(size_t size, unsigned int seed)
{
    char *bytes = malloc(size + 1);

    CHECK(bytes);
    fill(bytes, size, seed);
    return bytes;
}

#endif
