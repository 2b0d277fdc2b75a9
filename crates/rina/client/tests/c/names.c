/* Registration: with and without waiting, taken names, versions, the end of a control descriptor. */
#include "check.h"

static void taken_and_own_names(void)
{
    int control = rina_open(), other = rina_open();

    CHECK(control >= 0 && other >= 0);
    CHECK(rina_register(control, NULL, "name", 0) == 0);
    /* On the same descriptor it is there already; "" and NULL mean the same. */
    CHECK(rina_register(control, NULL, "name", 0) == 0);
    CHECK(rina_register(control, "", "name", 0) == 0);
    FAILS(rina_register(other, NULL, "name", 0), EBUSY);
    FAILS(rina_register(other, "no such dif", "free", 0), ENXIO);
    FAILS(rina_unregister(other, NULL, "name", 0), ENXIO);
    FAILS(rina_unregister(control, "another.dif", "name", 0), ENXIO);
    CHECK(rina_unregister(control, NULL, "name", 0) == 0);
    FAILS(rina_unregister(control, NULL, "name", 0), ENXIO);
    /* The name is free for the other. */
    while (rina_register(other, NULL, "name", 0) == -1) {
        CHECK(errno == EBUSY);
    }
    close(other);
    close(control);
}

/* process|instance|entity|instance: empty parts at the end may be left out, with their bars. */
static void names_in_parts(void)
{
    int control = registered("server|1"), other = rina_open(), wait, flow;
    char *remote = NULL;

    CHECK(other >= 0 && rina_register(other, NULL, "server", 0) == 0);
    FAILS(rina_register(other, NULL, "server|1", 0), EBUSY);
    FAILS(rina_register(other, NULL, "server|1||", 0), EBUSY);
    CHECK(rina_register(control, NULL, "server|1||", 0) == 0);
    FAILS(rina_register(other, NULL, "|1", 0), EINVAL);
    FAILS(rina_register(other, NULL, "|||", 0), EINVAL);
    wait = rina_flow_alloc(NULL, "client|2|entity|3", "server|1|", NULL, RINA_F_NOWAIT);
    CHECK(wait >= 0 && has(control, POLLIN, LONG_MS) && !has(other, POLLIN, 0));
    flow = rina_flow_accept(control, &remote, NULL, 0);
    CHECK(flow >= 0 && strcmp(remote, "client|2|entity|3") == 0);
    free(remote);
    close(flow);
    CHECK((flow = rina_flow_alloc_wait(wait)) >= 0);
    close(flow);
    close(other);
    close(control);
}

static void nonsense(void)
{
    int control = rina_open(), end[2];

    CHECK(control >= 0);
    FAILS(rina_register(control, NULL, "", 0), EINVAL);
    FAILS(rina_register(control, NULL, NULL, 0), EINVAL);
    FAILS(rina_register(control, NULL, "free", 64), EINVAL);
    FAILS(rina_register(control, NULL, "free", RINA_F_NORESP), EINVAL);
    FAILS(rina_register(-1, NULL, "free", 0), EBADF);
    FAILS(rina_unregister(-1, NULL, "free", 0), EBADF);
    FAILS(rina_register_wait(control, -1), EBADF);
    /* A descriptor of another kind is no control descriptor. */
    CHECK(pipe(end) == 0);
    CHECK(rina_register(end[1], NULL, "free", 0) == -1);
    close(end[0]);
    close(end[1]);
    /* None of this has hurt. */
    CHECK(rina_register(control, NULL, "free", 0) == 0);
    close(control);
}

/* Completes a call that did not wait; wfd is good as long as there is no answer. */
static int completed(int control, int wfd)
{
    int result;

    CHECK(wfd >= 0);
    make_nonblocking(wfd);
    while ((result = rina_register_wait(control, wfd)) == -1 && errno == EAGAIN) {
        CHECK(is_open(wfd));
        CHECK(has(wfd, POLLIN, LONG_MS));
    }
    return result;
}

static void without_waiting(void)
{
    int control = rina_open(), other = rina_open(), wfd;

    CHECK(control >= 0 && other >= 0);
    wfd = rina_register(control, NULL, "name", RINA_F_NOWAIT);
    CHECK(completed(control, wfd) == 0 && !is_open(wfd));
    wfd = rina_register(other, NULL, "name", RINA_F_NOWAIT);
    FAILS(completed(other, wfd), EBUSY);
    CHECK(!is_open(wfd));
    /* The wait waits when the descriptor does. */
    wfd = rina_register(other, NULL, "second", RINA_F_NOWAIT);
    CHECK(wfd >= 0 && rina_register_wait(other, wfd) == 0 && !is_open(wfd));
    wfd = rina_unregister(other, NULL, "second", RINA_F_NOWAIT);
    CHECK(completed(other, wfd) == 0 && !is_open(wfd));
    wfd = rina_unregister(other, NULL, "second", RINA_F_NOWAIT);
    FAILS(completed(other, wfd), ENXIO);
    /* Nothing of this shows in the control descriptor. */
    CHECK(!has(control, POLLIN, 0) && !has(other, POLLIN, 0));
    close(other);
    close(control);
}

static void closing_unregisters(void)
{
    int control = registered("held"), copy = dup(control), other = rina_open();

    CHECK(copy >= 0 && other >= 0);
    CHECK(rina_register(control, NULL, "held too", 0) == 0);
    close(control);
    /* The last copy counts. */
    FAILS(rina_register(other, NULL, "held", 0), EBUSY);
    CHECK(rina_register(copy, NULL, "held", 0) == 0);
    close(copy);
    while (rina_register(other, NULL, "held", 0) == -1) {
        CHECK(errno == EBUSY);
    }
    while (rina_register(other, NULL, "held too", 0) == -1) {
        CHECK(errno == EBUSY);
    }
    close(other);
}

static void many_descriptors_one_after_the_other(void)
{
    int i;

    for (i = 0; i < 100; i++) {
        int control = rina_open();

        CHECK(control >= 0 && control < 100);
        close(control);
    }
}

int main(void)
{
    taken_and_own_names();
    names_in_parts();
    nonsense();
    without_waiting();
    closing_unregisters();
    many_descriptors_one_after_the_other();
    CHECK(setenv("CARINA_RUN", "/nonexistent", 1) == 0);
    FAILS(rina_open(), ENXIO);
    puts("as it should be");
    return 0;
}
