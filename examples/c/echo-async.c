/*
 * Echo over RINA with one thread and no call that waits: poll(2) says what to do next.
 *
 *   echo-async -l [-a NAME] [-d DIF] [-n FLOWS]      serves; ends after FLOWS flows, 0: never
 *   echo-async [-a NAME] [-d DIF] [-p FLOWS] [-g GAP]
 *              [-s SIZE] [TEXT]                      sends TEXT on FLOWS flows at once and says
 *                                                    what came back
 *
 * NAME is echo-async when not given. GAP is how many SDUs may be lost in a row: -1 for any, 0 for
 * a reliable flow.
 *
 * Build:  cc examples/c/echo-async.c $(pkg-config --cflags --libs rina) -o echo-async
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rina/api.h>

#define FLOWS_MAX 128
#define SDU_MAX 4096

enum state {
    REGISTERING, /* the descriptor is the wait of rina_register */
    LISTENING,   /* the control descriptor */
    ALLOCATING,  /* the wait of rina_flow_alloc */
    SENDING,     /* a flow with something to send */
    RECEIVING    /* a flow that waits for an SDU */
};

struct worker {
    enum state state;
    int fd;
    size_t length;
    char sdu[SDU_MAX];
};

struct loop {
    struct worker *workers[FLOWS_MAX + 2];
    int count;
    int control;
    int is_server;
    int flows_left; /* that the server will still accept; -1: any number */
};

static void die(const char *what)
{
    fprintf(stderr, "echo-async: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct worker *add(struct loop *loop, enum state state, int fd)
{
    struct worker *worker = calloc(1, sizeof(*worker));

    if (!worker) {
        die("calloc");
    }
    if (fcntl(fd, F_SETFL, O_NONBLOCK) == -1) {
        die("fcntl");
    }
    worker->state = state;
    worker->fd = fd;
    loop->workers[loop->count++] = worker;
    return worker;
}

/* The last worker takes the place of the one that ends. */
static void end(struct loop *loop, int i)
{
    close(loop->workers[i]->fd);
    free(loop->workers[i]);
    loop->workers[i] = loop->workers[--loop->count];
}

static int is_later(void)
{
    return errno == EAGAIN || errno == EINTR;
}

static void accept_one(struct loop *loop)
{
    struct rina_flow_spec spec = { .version = RINA_FLOW_SPEC_VERSION };
    char *remote = NULL;
    int handle = rina_flow_accept(loop->control, &remote, &spec, RINA_F_NORESP);
    int is_full = loop->count > FLOWS_MAX || loop->flows_left == 0;
    int flow;

    if (handle < 0) {
        if (!is_later() && errno != ECONNABORTED) {
            die("rina_flow_accept");
        }
        return;
    }
    flow = rina_flow_respond(loop->control, handle, is_full ? 1 : 0);
    if (flow < 0 && errno != ECONNABORTED) {
        die("rina_flow_respond");
    }
    if (!is_full && flow >= 0) {
        printf("flow from %s, gap %lld\n", remote ? remote : "?", (long long)spec.max_sdu_gap);
        fflush(stdout);
        add(loop, RECEIVING, flow);
        if (loop->flows_left > 0) {
            loop->flows_left--;
        }
    }
    free(remote);
}

/* Does what the worker's descriptor is ready for; gives 0 when the worker has ended. */
static int step(struct loop *loop, struct worker *worker)
{
    ssize_t length;
    int fd;

    switch (worker->state) {
    case REGISTERING:
        if (rina_register_wait(loop->control, worker->fd) < 0) {
            if (is_later()) {
                return 1;
            }
            die("rina_register_wait");
        }
        puts("registered");
        fflush(stdout);
        worker->fd = loop->control;
        worker->state = LISTENING;
        return 1;
    case LISTENING:
        accept_one(loop);
        return 1;
    case ALLOCATING:
        fd = rina_flow_alloc_wait(worker->fd);
        if (fd < 0) {
            if (is_later()) {
                return 1;
            }
            die("rina_flow_alloc_wait");
        }
        if (fcntl(fd, F_SETFL, O_NONBLOCK) == -1) {
            die("fcntl");
        }
        worker->fd = fd;
        worker->state = SENDING;
        return 1;
    case SENDING:
        length = write(worker->fd, worker->sdu, worker->length);
        if (length < 0) {
            return is_later();
        }
        worker->state = RECEIVING;
        return 1;
    case RECEIVING:
        length = read(worker->fd, worker->sdu, sizeof(worker->sdu));
        if (length < 0) {
            return is_later();
        }
        if (length == 0) {
            return 0;
        }
        worker->length = (size_t)length;
        worker->state = SENDING;
        if (!loop->is_server) {
            printf("%.*s\n", length < 60 ? (int)length : 60, worker->sdu);
            return 0;
        }
        return 1;
    }
    return 0;
}

static void run(struct loop *loop)
{
    while (loop->count > 0) {
        struct pollfd ready[FLOWS_MAX + 2];
        int i, count = loop->count;

        if (loop->is_server && loop->flows_left == 0 && count == 1) {
            end(loop, 0);
            return;
        }
        for (i = 0; i < count; i++) {
            ready[i].fd = loop->workers[i]->fd;
            ready[i].events = loop->workers[i]->state == SENDING ? POLLOUT : POLLIN;
        }
        if (poll(ready, (nfds_t)count, -1) < 0) {
            if (errno == EINTR) {
                continue;
            }
            die("poll");
        }
        /* From the last, so that one that ends is replaced by one that has been looked at. */
        for (i = count - 1; i >= 0; i--) {
            if (ready[i].revents && !step(loop, loop->workers[i])) {
                end(loop, i);
            }
        }
    }
}

static void fill(struct worker *worker, const char *text, size_t size)
{
    size_t length = strlen(text);

    worker->length = length < sizeof(worker->sdu) ? length : sizeof(worker->sdu);
    memcpy(worker->sdu, text, worker->length);
    if (size > worker->length && size <= sizeof(worker->sdu)) {
        memset(worker->sdu + worker->length, '.', size - worker->length);
        worker->length = size;
    }
}

int main(int argc, char **argv)
{
    struct loop loop = { .flows_left = -1 };
    const char *name = "echo-async", *dif = NULL, *text = "Hello RINA!";
    int flows = 1, option, fd, i;
    struct rina_flow_spec spec;
    size_t size = 0;

    rina_flow_spec_unreliable(&spec);
    while ((option = getopt(argc, argv, "la:d:n:p:g:s:")) != -1) {
        switch (option) {
        case 'l': loop.is_server = 1; break;
        case 'a': name = optarg; break;
        case 'd': dif = optarg; break;
        case 'n': loop.flows_left = atoi(optarg) > 0 ? atoi(optarg) : -1; break;
        case 'p': flows = atoi(optarg); break;
        case 'g': spec.max_sdu_gap = (uint64_t)strtoll(optarg, NULL, 10); break;
        case 's': size = strtoul(optarg, NULL, 10); break;
        default:
            fprintf(stderr, "usage: echo-async [-l] [-a NAME] [-d DIF] [-n FLOWS] [-p FLOWS] "
                            "[-g GAP] [-s SIZE] [TEXT]\n");
            return 2;
        }
    }
    if (optind < argc) {
        text = argv[optind];
    }
    if (flows < 1 || flows > FLOWS_MAX) {
        fprintf(stderr, "echo-async: -p %d: from 1 to %d flows are possible\n", flows, FLOWS_MAX);
        return 2;
    }
    spec.in_order_delivery = spec.max_sdu_gap == 0;

    if (loop.is_server) {
        loop.control = rina_open();
        if (loop.control < 0 || fcntl(loop.control, F_SETFL, O_NONBLOCK) == -1) {
            die("rina_open");
        }
        fd = rina_register(loop.control, dif, name, RINA_F_NOWAIT);
        if (fd < 0) {
            die("rina_register");
        }
        add(&loop, REGISTERING, fd);
    } else {
        for (i = 0; i < flows; i++) {
            fd = rina_flow_alloc(dif, "echo-async-client", name, &spec, RINA_F_NOWAIT);
            if (fd < 0) {
                die("rina_flow_alloc");
            }
            fill(add(&loop, ALLOCATING, fd), text, size);
        }
    }
    run(&loop);
    return 0;
}
