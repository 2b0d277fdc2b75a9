/*
 * Measures a flow: a control flow agrees on the run, a data flow carries it.
 *
 *   measure -l [-n RUNS]                                    serves; ends after RUNS, 0: never
 *   measure ping|flood|stream [-c COUNT] [-s SIZE] [-g GAP]  measures one run
 *
 *      client                                      server
 *        |---- allocates a reliable flow ------------>|
 *        |---- run: kind, count, size --------------->|
 *        |<--- ticket --------------------------------|
 *        |---- allocates the flow to be measured ---->|
 *        |---- ticket ------------------------------->|
 *        |<--- go ------------------------------------|   on the data flow
 *        |==== ping: each SDU comes back =============|
 *        |==== flood: COUNT SDUs, one way ===========>|
 *        |==== stream: COUNT * SIZE bytes, no SDUs ==>|
 *        |---- closes the data flow ----------------->|
 *        |<--- result: SDUs, bytes, ms ---------------|   on the control flow
 *
 * The numbers on the flow are big-endian. Every run is a process of its own.
 *
 * Build:  cc examples/c/measure.c $(pkg-config --cflags --libs rina) -o measure
 */
#define _DEFAULT_SOURCE
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rina/api.h>

#define NAME "measure"

enum kind { PING = 1, FLOOD, STREAM };

struct run {
    uint32_t kind;
    uint32_t size;
    uint64_t count;
};

struct ticket {
    uint32_t number;
};

struct result {
    uint64_t sdus;
    uint64_t bytes;
    uint64_t ms;
};

static int fail(const char *what)
{
    fprintf(stderr, "measure: %s: %s\n", what, errno ? strerror(errno) : "too short");
    return -1;
}

static uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Reads one message of a length that is known. */
static int get(int flow, void *message, size_t size, const char *what)
{
    errno = 0;
    return read(flow, message, size) == (ssize_t)size ? 0 : fail(what);
}

static int put(int flow, const void *message, size_t size, const char *what)
{
    errno = 0;
    return write(flow, message, size) == (ssize_t)size ? 0 : fail(what);
}

/* --- server --- */

/* Answers or counts until the client closes the data flow. */
static int carry(int data, const struct run *run, struct result *result)
{
    size_t room = rina_flow_mss_get(data);
    char *sdu = malloc(room);
    uint64_t start = now_us();
    ssize_t length;

    memset(result, 0, sizeof(*result));
    while (sdu && (length = read(data, sdu, room)) > 0) {
        result->sdus++;
        result->bytes += (uint64_t)length;
        if (run->kind == PING && write(data, sdu, (size_t)length) != length) {
            break;
        }
    }
    free(sdu);
    result->ms = (now_us() - start) / 1000;
    return 0;
}

/* The next flow, if it comes with the ticket. */
static int data_flow(int control, uint32_t number)
{
    struct pollfd ready = { .fd = control, .events = POLLIN };
    struct ticket shown;
    int data;

    if (poll(&ready, 1, 5000) != 1) {
        errno = ETIMEDOUT;
        return fail("data flow");
    }
    data = rina_flow_accept(control, NULL, NULL, 0);
    if (data < 0) {
        return fail("rina_flow_accept");
    }
    if (get(data, &shown, sizeof(shown), "ticket") < 0 || be32toh(shown.number) != number ||
        put(data, "go", 2, "go") < 0) {
        close(data);
        return -1;
    }
    return data;
}

static int serve_run(int control, int flow)
{
    static uint32_t last_ticket;
    struct ticket ticket = { .number = htobe32(++last_ticket) };
    struct result result;
    struct run run;
    int data;
    pid_t child;

    if (get(flow, &run, sizeof(run), "run") < 0 ||
        put(flow, &ticket, sizeof(ticket), "ticket") < 0) {
        return -1;
    }
    data = data_flow(control, last_ticket);
    if (data < 0) {
        return -1;
    }
    child = fork();
    if (child == 0) {
        close(control);
        run.kind = be32toh(run.kind);
        carry(data, &run, &result);
        result.sdus = htobe64(result.sdus);
        result.bytes = htobe64(result.bytes);
        result.ms = htobe64(result.ms);
        _exit(put(flow, &result, sizeof(result), "result") < 0);
    }
    close(data);
    return child < 0 ? fail("fork") : 0;
}

static int server(int runs)
{
    int control = rina_open(), i;

    if (control < 0 || rina_register(control, NULL, NAME, 0) < 0) {
        return fail("rina_register");
    }
    puts("registered");
    fflush(stdout);
    for (i = 0; runs == 0 || i < runs; i++) {
        int flow = rina_flow_accept(control, NULL, NULL, 0);

        if (flow < 0) {
            return fail("rina_flow_accept");
        }
        serve_run(control, flow);
        close(flow);
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
    }
    close(control);
    while (wait(NULL) > 0) {
    }
    return 0;
}

/* --- client --- */

static int ping(int data, const struct run *run, char *sdu, char *back)
{
    uint64_t n, start = now_us();

    for (n = 0; n < run->count; n++) {
        struct pollfd ready = { .fd = data, .events = POLLIN };

        memcpy(sdu, &n, run->size < sizeof(n) ? run->size : sizeof(n));
        if (put(data, sdu, run->size, "write") < 0) {
            return -1;
        }
        if (poll(&ready, 1, 5000) != 1) {
            errno = ETIMEDOUT;
            return fail("answer");
        }
        if (get(data, back, run->size, "read") < 0) {
            return -1;
        }
        if (memcmp(sdu, back, run->size) != 0) {
            fprintf(stderr, "measure: SDU %llu came back changed\n", (unsigned long long)n);
            return -1;
        }
    }
    printf("%llu round trips, %.1f us each\n", (unsigned long long)n,
           (double)(now_us() - start) / (double)(n ? n : 1));
    return 0;
}

static int flood(int data, const struct run *run, const char *sdu)
{
    uint64_t n;

    for (n = 0; n < run->count; n++) {
        if (put(data, sdu, run->size, "write") < 0) {
            return -1;
        }
    }
    return 0;
}

static int measure(int control, int data, const struct run *run, uint32_t number)
{
    struct ticket ticket = { .number = number };
    char go[2], *sdu = calloc(2, run->size + 1);
    struct result result;
    int failed;

    if (!sdu || put(data, &ticket, sizeof(ticket), "ticket") < 0 ||
        get(data, go, sizeof(go), "go") < 0) {
        free(sdu);
        close(data);
        return -1;
    }
    failed = run->kind == PING ? ping(data, run, sdu, sdu + run->size) : flood(data, run, sdu);
    free(sdu);
    close(data);
    if (failed || get(control, &result, sizeof(result), "result") < 0) {
        return -1;
    }
    printf("received %llu bytes", (unsigned long long)be64toh(result.bytes));
    if (run->kind != STREAM) {
        printf(" in %llu SDUs", (unsigned long long)be64toh(result.sdus));
    }
    printf(" in %llu ms\n", (unsigned long long)be64toh(result.ms));
    return 0;
}

static int client(const struct run *run, struct rina_flow_spec *spec)
{
    struct run asked = { htobe32(run->kind), htobe32(run->size), htobe64(run->count) };
    struct rina_flow_spec reliable;
    struct ticket ticket;
    int control, data, result;

    rina_flow_spec_unreliable(&reliable);
    reliable.max_sdu_gap = 0;
    reliable.in_order_delivery = 1;
    control = rina_flow_alloc(NULL, NAME "-client", NAME, &reliable, 0);
    if (control < 0) {
        return fail("rina_flow_alloc");
    }
    if (put(control, &asked, sizeof(asked), "run") < 0 ||
        get(control, &ticket, sizeof(ticket), "ticket") < 0) {
        return -1;
    }
    data = rina_flow_alloc(NULL, NAME "-data", NAME, spec, 0);
    if (data < 0) {
        return fail("rina_flow_alloc");
    }
    result = measure(control, data, run, ticket.number);
    close(control);
    return result;
}

int main(int argc, char **argv)
{
    struct run run = { .kind = 0, .size = 64, .count = 10 };
    struct rina_flow_spec spec;
    int is_server = 0, runs = 0, option;

    rina_flow_spec_unreliable(&spec);
    while ((option = getopt(argc, argv, "ln:c:s:g:")) != -1) {
        switch (option) {
        case 'l': is_server = 1; break;
        case 'n': runs = atoi(optarg); break;
        case 'c': run.count = strtoull(optarg, NULL, 10); break;
        case 's': run.size = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'g': spec.max_sdu_gap = (uint64_t)strtoll(optarg, NULL, 10); break;
        default: argc = -1;
        }
    }
    if (is_server) {
        return server(runs) < 0;
    }
    if (optind == argc - 1) {
        run.kind = strcmp(argv[optind], "ping") == 0     ? PING
                   : strcmp(argv[optind], "flood") == 0  ? FLOOD
                   : strcmp(argv[optind], "stream") == 0 ? STREAM
                                                         : 0;
    }
    if (run.kind == 0 || run.size == 0) {
        fprintf(stderr, "usage: measure -l [-n RUNS] | "
                        "measure ping|flood|stream [-c COUNT] [-s SIZE] [-g GAP]\n");
        return 2;
    }
    spec.in_order_delivery = spec.max_sdu_gap == 0;
    if (run.kind == STREAM) {
        spec.msg_boundaries = 0;
        spec.max_sdu_gap = 0;
        spec.max_loss = 0;
        spec.in_order_delivery = 1;
    }
    return client(&run, &spec) < 0;
}
