/*
 * Echo over RINA.
 *
 *   echo server NAME              registers NAME and sends every SDU back, one flow after the other
 *   echo client NAME COUNT SIZE   sends COUNT SDUs of SIZE bytes to NAME and checks the answers
 *
 * Build:  cc examples/c/echo.c $(pkg-config --cflags --libs rina) -o echo
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rina/api.h>

static int fail(const char *what)
{
    fprintf(stderr, "echo: %s: %s\n", what, strerror(errno));
    return 1;
}

/* Sends everything back until the other side closes the flow. */
static int serve(int flow)
{
    size_t size = rina_flow_mss_get(flow);
    char *sdu = malloc(size);
    ssize_t length;

    if (size == 0 || !sdu) {
        free(sdu);
        return fail("buffer");
    }
    while ((length = read(flow, sdu, size)) > 0) {
        if (write(flow, sdu, (size_t)length) != length) {
            break;
        }
    }
    free(sdu);
    return length < 0 ? fail("read") : 0;
}

static int server(const char *name)
{
    int control = rina_open();

    if (control < 0) {
        return fail("rina_open");
    }
    if (rina_register(control, NULL, name, 0) < 0) {
        return fail("rina_register");
    }
    printf("registered %s\n", name);
    fflush(stdout);
    for (;;) {
        struct rina_flow_spec spec = { .version = RINA_FLOW_SPEC_VERSION };
        char *remote = NULL;
        int flow = rina_flow_accept(control, &remote, &spec, 0);

        if (flow < 0) {
            if (errno == EINTR || errno == ECONNABORTED) {
                continue;
            }
            return fail("rina_flow_accept");
        }
        printf("flow from %s\n", remote ? remote : "?");
        fflush(stdout);
        free(remote);
        serve(flow);
        close(flow);
    }
}

/* Reads one SDU, waiting for at most five seconds. */
static ssize_t read_soon(int flow, char *sdu, size_t size)
{
    struct pollfd ready = { .fd = flow, .events = POLLIN };

    if (poll(&ready, 1, 5000) <= 0) {
        errno = ETIMEDOUT;
        return -1;
    }
    return read(flow, sdu, size);
}

static int client(const char *name, unsigned long count, size_t size)
{
    struct rina_flow_spec spec;
    char *sent = malloc(size + 1), *received = malloc(size + 1);
    unsigned long n;
    int flow, wait;

    rina_flow_spec_unreliable(&spec);
    spec.max_sdu_gap = 0;
    spec.in_order_delivery = 1;
    wait = rina_flow_alloc(NULL, "echo.client", name, &spec, RINA_F_NOWAIT);
    if (wait < 0) {
        return fail("rina_flow_alloc");
    }
    flow = rina_flow_alloc_wait(wait);
    if (flow < 0) {
        return fail("rina_flow_alloc_wait");
    }
    if (!sent || !received) {
        return fail("malloc");
    }
    for (n = 0; n < count; n++) {
        size_t i;

        for (i = 0; i < size; i++) {
            sent[i] = (char)(n * 31 + i * 7);
        }
        if (write(flow, sent, size) != (ssize_t)size) {
            return fail("write");
        }
        if (read_soon(flow, received, size + 1) != (ssize_t)size) {
            return fail("read");
        }
        if (memcmp(sent, received, size) != 0) {
            fprintf(stderr, "echo: SDU %lu came back changed\n", n);
            return 1;
        }
    }
    close(flow);
    free(sent);
    free(received);
    printf("%lu SDUs of %zu bytes came back\n", count, size);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "server") == 0) {
        return server(argv[2]);
    }
    if (argc == 5 && strcmp(argv[1], "client") == 0) {
        return client(argv[2], strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10));
    }
    fprintf(stderr, "usage: echo server NAME | echo client NAME COUNT SIZE\n");
    return 2;
}
