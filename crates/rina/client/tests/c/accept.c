/* Requests for flows: accepted, refused, many at once, in any order, with and without waiting. */
#include <pthread.h>
#include <stddef.h>

#include "check.h"

#define MANY_MAX 1000

/* Everything but the version, which the one who asks sets for itself. */
static int is_same(const struct rina_flow_spec *a, const struct rina_flow_spec *b)
{
    return a->max_delay == b->max_delay && a->max_sdu_gap == b->max_sdu_gap &&
           a->avg_bandwidth == b->avg_bandwidth && a->max_loss == b->max_loss &&
           a->in_order_delivery == b->in_order_delivery &&
           a->msg_boundaries == b->msg_boundaries && a->max_jitter == b->max_jitter;
}

static void layout(void)
{
    /* Programs are compiled against these. */
    CHECK(RINA_FLOW_SPEC_VERSION == 2 && RINA_F_NOWAIT == 1 && RINA_F_NORESP == 2);
    CHECK(offsetof(struct rina_flow_spec, version) == 0);
    CHECK(offsetof(struct rina_flow_spec, max_delay) == 4);
    CHECK(offsetof(struct rina_flow_spec, max_sdu_gap) == 8);
    CHECK(offsetof(struct rina_flow_spec, avg_bandwidth) == 16);
    CHECK(offsetof(struct rina_flow_spec, max_loss) == 24);
    CHECK(offsetof(struct rina_flow_spec, in_order_delivery) == 26);
    CHECK(offsetof(struct rina_flow_spec, msg_boundaries) == 27);
    CHECK(offsetof(struct rina_flow_spec, max_jitter) == 28);
}

static void unreliable(void)
{
    struct rina_flow_spec spec;

    memset(&spec, 0x55, sizeof(spec));
    rina_flow_spec_unreliable(&spec);
    CHECK(spec.version == 2 && spec.max_delay == 0 && spec.max_sdu_gap == UINT64_MAX);
    CHECK(spec.avg_bandwidth == 0 && spec.max_loss == 10000 && spec.in_order_delivery == 0);
    CHECK(spec.msg_boundaries == 1 && spec.max_jitter == 0);
}

static void specification_is_told(void)
{
    int control = registered("spec"), wait, ends[2];
    struct rina_flow_spec wish = reliable(), seen;
    char *remote = NULL;

    wish.max_sdu_gap = 7;
    wish.max_loss = 1234;
    wish.msg_boundaries = 0;
    wait = asked("spec", &wish);
    /* The version is set by the one who accepts, and what it has does not match takes nothing. */
    memset(&seen, 0, sizeof(seen));
    seen.version = 1;
    FAILS(rina_flow_accept(control, &remote, &seen, 0), EINVAL);
    seen.version = 3;
    FAILS(rina_flow_accept(control, &remote, &seen, RINA_F_NORESP), EINVAL);
    CHECK(remote == NULL && seen.max_sdu_gap == 0 && seen.max_delay == 0);
    seen.version = RINA_FLOW_SPEC_VERSION;
    ends[1] = rina_flow_accept(control, &remote, &seen, 0);
    CHECK(ends[1] >= 0 && strcmp(remote, "caller") == 0);
    CHECK(seen.version == RINA_FLOW_SPEC_VERSION && is_same(&seen, &wish));
    free(remote);
    CHECK((ends[0] = rina_flow_alloc_wait(wait)) >= 0);
    close(ends[0]);
    close(ends[1]);

    /* Whoever wants to know nothing passes NULL; without a specification nothing is asked for. */
    wait = asked("spec", NULL);
    CHECK(has(control, POLLIN, LONG_MS));
    ends[1] = rina_flow_accept(control, NULL, &seen, 0);
    rina_flow_spec_unreliable(&wish);
    CHECK(ends[1] >= 0 && is_same(&seen, &wish));
    CHECK((ends[0] = rina_flow_alloc_wait(wait)) >= 0);
    close(ends[0]);
    close(ends[1]);
    connected(control, "spec", NULL, ends);
    close(ends[0]);
    close(ends[1]);
    close(control);
}

static void nobody_asks(void)
{
    int control = registered("idle");

    make_nonblocking(control);
    CHECK(!has(control, POLLIN, 0));
    FAILS(rina_flow_accept(control, NULL, NULL, 0), EAGAIN);
    FAILS(rina_flow_accept(control, NULL, NULL, RINA_F_NORESP), EAGAIN);
    FAILS(rina_flow_accept(control, NULL, NULL, 4), EINVAL);
    FAILS(rina_flow_accept(control, NULL, NULL, RINA_F_NOWAIT), EINVAL);
    FAILS(rina_flow_accept(-1, NULL, NULL, 0), EBADF);
    close(control);
}

/*
 * As many requests as the node lets wait for one application, answered from the last to the first;
 * every third is refused.
 */
static void many_handles(int many)
{
    int control = registered("many"), wait[MANY_MAX], handle[MANY_MAX], i;

    CHECK(many > 0 && many <= MANY_MAX);
    for (i = 0; i < many; i++) {
        wait[i] = asked("many", NULL);
        handle[i] = rina_flow_accept(control, NULL, NULL, RINA_F_NORESP);
        CHECK(handle[i] >= 0);
        make_nonblocking(wait[i]);
        FAILS(rina_flow_alloc_wait(wait[i]), EAGAIN);
        CHECK(is_open(wait[i]));
    }
    /* One more is refused by the node, and nobody hears of it. */
    FAILS(rina_flow_alloc(NULL, "caller", "many", NULL, 0), EPERM);
    CHECK(!has(control, POLLIN, 0));
    for (i = many - 1; i >= 0; i--) {
        int mine, theirs = rina_flow_respond(control, handle[i], i % 3 == 0 ? 1 : 0);
        char sdu[4];

        CHECK(has(wait[i], POLLIN, LONG_MS));
        mine = rina_flow_alloc_wait(wait[i]);
        if (i % 3 == 0) {
            CHECK(theirs == 0 && mine == -1 && errno == EPERM && !is_open(wait[i]));
            continue;
        }
        CHECK(theirs >= 0 && mine >= 0);
        CHECK(write(mine, &i, sizeof(i)) == sizeof(i));
        CHECK(read(theirs, sdu, sizeof(sdu)) == sizeof(i) && memcmp(sdu, &i, sizeof(i)) == 0);
        close(mine);
        close(theirs);
    }
    close(control);
}

static void bad_handles(void)
{
    int control = registered("handles"), other = registered("others"), wait, handle, flow;

    FAILS(rina_flow_respond(control, 0, 0), EINVAL);
    FAILS(rina_flow_respond(control, -1, 0), EINVAL);
    FAILS(rina_flow_respond(control, 12345, 1), EINVAL);
    FAILS(rina_flow_respond(-1, 1, 0), EBADF);
    wait = asked("handles", NULL);
    handle = rina_flow_accept(control, NULL, NULL, RINA_F_NORESP);
    CHECK(handle >= 0);
    /* A handle is good where it came from, and once. */
    FAILS(rina_flow_respond(other, handle, 0), EINVAL);
    flow = rina_flow_respond(control, handle, 0);
    CHECK(flow >= 0);
    FAILS(rina_flow_respond(control, handle, 0), EINVAL);
    FAILS(rina_flow_respond(control, handle, 1), EINVAL);
    close(flow);
    CHECK((flow = rina_flow_alloc_wait(wait)) >= 0);
    close(flow);

    /* Whoever asked has given up. */
    wait = asked("handles", NULL);
    handle = rina_flow_accept(control, NULL, NULL, RINA_F_NORESP);
    CHECK(handle >= 0);
    close(wait);
    flow = rina_flow_respond(control, handle, 0);
    CHECK(flow >= 0 || errno == ECONNABORTED);
    if (flow >= 0) {
        char byte;

        /* The news had not arrived: the flow ends at once. */
        CHECK(read(flow, &byte, 1) == 0);
        close(flow);
    }

    /* The name is given up while somebody waits for an answer. */
    wait = asked("handles", NULL);
    handle = rina_flow_accept(control, NULL, NULL, RINA_F_NORESP);
    CHECK(rina_unregister(control, NULL, "handles", 0) == 0);
    FAILS(rina_flow_respond(control, handle, 0), EINVAL);
    FAILS(rina_flow_alloc_wait(wait), EPERM);
    close(other);
    close(control);
}

/* One control descriptor, several names: which one was asked for tells the order of the requests. */
static void several_names(void)
{
    int control = registered("one"), wait[2], flow[2];

    CHECK(rina_register(control, NULL, "two", 0) == 0);
    wait[0] = asked("one", NULL);
    CHECK(has(control, POLLIN, LONG_MS));
    flow[0] = rina_flow_accept(control, NULL, NULL, 0);
    CHECK(!has(control, POLLIN, 0));
    wait[1] = asked("two", NULL);
    flow[1] = rina_flow_accept(control, NULL, NULL, 0);
    CHECK(flow[0] >= 0 && flow[1] >= 0);
    close(flow[0]);
    close(flow[1]);
    CHECK((flow[0] = rina_flow_alloc_wait(wait[0])) >= 0);
    CHECK((flow[1] = rina_flow_alloc_wait(wait[1])) >= 0);
    close(flow[0]);
    close(flow[1]);
    close(control);
}

static void *ask_and_wait(void *spec)
{
    static int flow;

    flow = rina_flow_alloc("", "caller", "slow", spec, 0);
    CHECK(flow >= 0);
    return &flow;
}

/* Both sides block: accept before anybody asks, allocation until the answer. */
static void waiting(void)
{
    int control = registered("slow"), flow;
    struct rina_flow_spec spec = reliable();
    pthread_t asker;
    void *other;

    CHECK(pthread_create(&asker, NULL, ask_and_wait, &spec) == 0);
    flow = rina_flow_accept(control, NULL, NULL, 0);
    CHECK(flow >= 0);
    CHECK(pthread_join(asker, &other) == 0);
    CHECK(write(flow, "x", 1) == 1 && has(*(int *)other, POLLIN, LONG_MS));
    close(flow);
    close(*(int *)other);
    close(control);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    layout();
    unreliable();
    specification_is_told();
    nobody_asks();
    many_handles(atoi(argv[1]));
    bad_handles();
    several_names();
    waiting();
    puts("as it should be");
    return 0;
}
