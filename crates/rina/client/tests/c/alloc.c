/* Allocation: names of the DIF, refusals, waiting and not waiting, the largest SDU. */
#include "check.h"

static void names_of_the_dif(const char *dif)
{
    int control = registered("here"), flow[2], i;
    const char *difs[3];

    difs[0] = NULL;
    difs[1] = "";
    difs[2] = dif;
    for (i = 0; i < 3; i++) {
        int wait = rina_flow_alloc(difs[i], "caller", "here", NULL, RINA_F_NOWAIT);

        CHECK(wait >= 0);
        flow[1] = rina_flow_accept(control, NULL, NULL, 0);
        flow[0] = rina_flow_alloc_wait(wait);
        CHECK(flow[0] >= 0 && flow[1] >= 0);
        close(flow[0]);
        close(flow[1]);
    }
    close(control);
    /* Registered in that DIF only. */
    CHECK((control = rina_open()) >= 0);
    CHECK(rina_register(control, dif, "only there", 0) == 0);
    connected(control, "only there", NULL, flow);
    close(flow[0]);
    close(flow[1]);
    CHECK(rina_unregister(control, dif, "only there", 0) == 0);
    close(control);
}

static void refusals(void)
{
    int control = registered("somebody"), wait;
    struct rina_flow_spec spec;

    rina_flow_spec_unreliable(&spec);
    FAILS(rina_flow_alloc(NULL, "me", "nobody", &spec, 0), EPERM);
    FAILS(rina_flow_alloc("no such dif", "me", "nobody", &spec, 0), EPERM);
    wait = asked("nobody", &spec);
    FAILS(rina_flow_alloc_wait(wait), EPERM);
    CHECK(!is_open(wait));
    FAILS(rina_flow_alloc_wait(-1), EBADF);
    FAILS(rina_flow_alloc(NULL, "me", NULL, &spec, 0), EINVAL);
    FAILS(rina_flow_alloc(NULL, NULL, "nobody", &spec, 0), EINVAL);
    FAILS(rina_flow_alloc(NULL, "me", "nobody", &spec, RINA_F_NORESP), EINVAL);
    spec.max_loss = 10001;
    FAILS(rina_flow_alloc(NULL, "me", "nobody", &spec, 0), EINVAL);
    /* This DIF promises no bandwidth and no delay. */
    rina_flow_spec_unreliable(&spec);
    spec.avg_bandwidth = 1000;
    FAILS(rina_flow_alloc(NULL, "me", "somebody", &spec, 0), EPERM);
    rina_flow_spec_unreliable(&spec);
    spec.max_delay = 1;
    FAILS(rina_flow_alloc(NULL, "me", "somebody", &spec, 0), EPERM);
    rina_flow_spec_unreliable(&spec);
    spec.version = 1;
    FAILS(rina_flow_alloc(NULL, "me", "nobody", &spec, 0), EINVAL);
    spec.version = 0;
    FAILS(rina_flow_alloc(NULL, "me", "nobody", &spec, RINA_F_NOWAIT), EINVAL);
    CHECK(!has(control, POLLIN, 0));
    close(control);
}

/* The descriptor of a call that did not wait, as an event loop has it. */
static void without_waiting(void)
{
    int control = registered("later"), wait = asked("later", NULL), handle, flow[2];

    handle = rina_flow_accept(control, NULL, NULL, RINA_F_NORESP);
    CHECK(handle >= 0);
    make_nonblocking(wait);
    CHECK(!has(wait, POLLIN, 0));
    FAILS(rina_flow_alloc_wait(wait), EAGAIN);
    FAILS(rina_flow_alloc_wait(wait), EAGAIN);
    CHECK(is_open(wait));
    flow[1] = rina_flow_respond(control, handle, 0);
    CHECK(flow[1] >= 0 && has(wait, POLLIN, LONG_MS));
    flow[0] = rina_flow_alloc_wait(wait);
    CHECK(flow[0] >= 0);
    /* The flow blocks, whatever the descriptor of the wait did. */
    CHECK((fcntl(flow[0], F_GETFL) & O_NONBLOCK) == 0);
    CHECK((fcntl(flow[1], F_GETFL) & O_NONBLOCK) == 0);
    close(flow[0]);
    close(flow[1]);
    close(control);
}

/* Both ends know what the DIF carries, and a write holds to it. */
static void largest_sdu(unsigned int expected)
{
    int control = registered("large"), ends[2], end[2];
    char *sdu = filled(expected + 1, 1);

    connected(control, "large", NULL, ends);
    CHECK(rina_flow_mss_get(ends[0]) == expected && rina_flow_mss_get(ends[1]) == expected);
    CHECK(write(ends[0], sdu, expected) == (ssize_t)expected);
    CHECK(read(ends[1], sdu, expected + 1) == (ssize_t)expected);
    free(sdu);
    CHECK(rina_flow_mss_get(-1) == 0 && errno == EBADF);
    CHECK(rina_flow_mss_get(control) == 0 && errno == EINVAL);
    CHECK(pipe(end) == 0);
    CHECK(rina_flow_mss_get(end[0]) == 0 && errno == ENOTSOCK);
    close(end[0]);
    close(end[1]);
    close(ends[0]);
    close(ends[1]);
    close(control);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    names_of_the_dif(argv[1]);
    refusals();
    without_waiting();
    largest_sdu((unsigned int)atoi(argv[2]));
    CHECK(setenv("CARINA_RUN", "/nonexistent", 1) == 0);
    FAILS(rina_flow_alloc(NULL, "me", "nobody", NULL, 0), ENXIO);
    puts("as it should be");
    return 0;
}
