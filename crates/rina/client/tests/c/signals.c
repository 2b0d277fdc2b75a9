/*
 * Every wait ends with EINTR when a signal comes, also with handlers that ask for a restart, and
 * what was under way can be done again.
 */
#include <signal.h>
#include <sys/time.h>

#include "check.h"

static int control;
static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

/* From now on signals come again and again, so that one of them meets the wait. */
static void start_alarms(void)
{
    struct itimerval often = { { 0, 20000 }, { 0, 20000 } };

    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static void stop_alarms(void)
{
    struct itimerval never = { { 0, 0 }, { 0, 0 } };

    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static void each_wait(void)
{
    struct rina_flow_spec spec = reliable();
    int wait, ends[2], handle;
    char sdu[1000] = { 0 };

    start_alarms();
    FAILS(rina_flow_accept(control, NULL, NULL, 0), EINTR);
    stop_alarms();

    wait = asked("asleep", &spec);
    handle = rina_flow_accept(control, NULL, NULL, RINA_F_NORESP);
    CHECK(handle >= 0);
    start_alarms();
    FAILS(rina_flow_alloc_wait(wait), EINTR);
    CHECK(is_open(wait));
    stop_alarms();
    ends[1] = rina_flow_respond(control, handle, 0);
    ends[0] = rina_flow_alloc_wait(wait);
    CHECK(ends[0] >= 0 && ends[1] >= 0);

    start_alarms();
    FAILS(read(ends[1], sdu, sizeof(sdu)), EINTR);
    while (write(ends[0], sdu, sizeof(sdu)) == sizeof(sdu)) {
    }
    CHECK(errno == EINTR);
    stop_alarms();
    /* No SDU is lost or cut by it. */
    CHECK(read(ends[1], sdu, sizeof(sdu)) == sizeof(sdu));
    make_nonblocking(ends[1]);
    while (read(ends[1], sdu, sizeof(sdu)) == sizeof(sdu)) {
    }
    CHECK(errno == EAGAIN);
    close(ends[0]);
    close(ends[1]);
}

/* Calls that only talk to the system are done when they return, signals or not. */
static void no_call_is_lost(void)
{
    int i;

    start_alarms();
    for (i = 0; i < 50 || alarms < 5; i++) {
        CHECK(rina_register(control, NULL, "again", 0) == 0);
        CHECK(rina_unregister(control, NULL, "again", 0) == 0);
    }
    stop_alarms();
}

int main(void)
{
    int flags[2] = { 0, SA_RESTART }, i;

    control = registered("asleep");
    for (i = 0; i < 2; i++) {
        struct sigaction action = { .sa_handler = on_alarm, .sa_flags = flags[i] };

        CHECK(sigaction(SIGALRM, &action, NULL) == 0);
        alarms = 0;
        each_wait();
        CHECK(alarms >= 4);
        no_call_is_lost();
    }
    close(control);
    puts("as it should be");
    return 0;
}
