/*
 * A server with one thread, select(2) and many flows, and its clients, which epoll(7) tells of the
 * answers: everything is non-blocking. Each client sends COUNT SDUs and gets each of them back.
 */
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>

#include "check.h"

#define CLIENTS 60
#define COUNT 20

static void server(int control)
{
    int flows[CLIENTS], open = 0, accepted = 0, i;

    make_nonblocking(control);
    while (accepted < CLIENTS || open > 0) {
        struct timeval patience = { LONG_MS / 1000, 0 };
        int highest = control;
        fd_set readable;

        FD_ZERO(&readable);
        FD_SET(control, &readable);
        for (i = 0; i < open; i++) {
            FD_SET(flows[i], &readable);
            highest = flows[i] > highest ? flows[i] : highest;
        }
        CHECK(select(highest + 1, &readable, NULL, NULL, &patience) > 0);
        for (i = open - 1; i >= 0; i--) {
            char sdu[64];
            ssize_t length;

            if (!FD_ISSET(flows[i], &readable)) {
                continue;
            }
            length = read(flows[i], sdu, sizeof(sdu));
            if (length > 0) {
                CHECK(write(flows[i], sdu, (size_t)length) == length);
            } else {
                CHECK(length == 0);
                close(flows[i]);
                flows[i] = flows[--open];
            }
        }
        if (FD_ISSET(control, &readable)) {
            int flow = rina_flow_accept(control, NULL, NULL, 0);

            CHECK(flow >= 0 && flow < FD_SETSIZE);
            make_nonblocking(flow);
            flows[open++] = flow;
            accepted++;
        }
    }
}

/* What a client is at. */
struct client {
    int fd; /* the flow, or the wait for it */
    int has_flow;
    unsigned int sent;
};

static void send_next(struct client *client, unsigned int number)
{
    unsigned int sdu[2];

    sdu[0] = number;
    sdu[1] = client->sent++;
    CHECK(write(client->fd, sdu, sizeof(sdu)) == sizeof(sdu));
}

/* Gives 1 when the client has done all. */
static int step(struct client *client, unsigned int number, int epoll)
{
    struct epoll_event event = { .events = EPOLLIN, .data = { .u32 = number } };
    unsigned int sdu[3];

    if (!client->has_flow) {
        /* The flow may have the number of the wait, which is closed. */
        int flow = rina_flow_alloc_wait(client->fd);

        CHECK(flow >= 0);
        make_nonblocking(flow);
        client->fd = flow;
        client->has_flow = 1;
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, flow, &event) == 0);
        send_next(client, number);
        return 0;
    }
    CHECK(read(client->fd, sdu, sizeof(sdu)) == 8);
    CHECK(sdu[0] == number && sdu[1] == client->sent - 1);
    if (client->sent < COUNT) {
        send_next(client, number);
        return 0;
    }
    close(client->fd);
    return 1;
}

static void clients(void)
{
    struct rina_flow_spec spec = reliable();
    struct client all[CLIENTS];
    int epoll = epoll_create1(0), done = 0;
    unsigned int i;

    CHECK(epoll >= 0);
    for (i = 0; i < CLIENTS; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data = { .u32 = i } };

        all[i].fd = asked("many", &spec);
        all[i].has_flow = 0;
        all[i].sent = 0;
        make_nonblocking(all[i].fd);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event) == 0);
    }
    while (done < CLIENTS) {
        struct epoll_event events[16];
        int ready = epoll_wait(epoll, events, 16, LONG_MS), n;

        CHECK(ready > 0);
        for (n = 0; n < ready; n++) {
            i = events[n].data.u32;
            done += step(&all[i], i, epoll);
        }
    }
    close(epoll);
}

int main(void)
{
    int control = registered("many"), status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        close(control);
        clients();
        _exit(0);
    }
    server(control);
    close(control);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("as it should be");
    return 0;
}
