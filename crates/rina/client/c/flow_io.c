/*
 * read, write, readv and writev as the POSIX-like API of RINA has them on a flow; on every other
 * descriptor they are those of the C library.
 *
 * The descriptor of a flow is a SOCK_SEQPACKET Unix socket: one message is one SDU. The kernel alone
 * already gives waiting, poll, fork, dup and close. It differs from the API in four things, which
 * this file is for:
 *
 *   - a read shorter than the SDU keeps the rest for the next read (the kernel discards it);
 *   - a write of no bytes does nothing (the kernel sends an empty message);
 *   - a write above the largest SDU fails with EMSGSIZE or, on a flow without message boundaries,
 *     goes as several SDUs (the kernel knows neither limit);
 *   - a write to a flow that has ended is discarded while SDUs are unread, and then fails with EPIPE
 *     and raises no signal (the kernel fails at once).
 *
 * Nothing is kept in the memory of the process, so that all of it holds after fork, in a program
 * that inherited the flow, from several threads and in signal handlers:
 *
 *   - how much of an SDU has been read is the peek offset of the socket (SO_PEEK_OFF), which the
 *     kernel moves while it holds the lock of the queue;
 *   - that the socket is a flow, and its largest SDU, is its SO_MAX_PACING_RATE, a number of 64 bits
 *     that means nothing to a Unix socket. `ffi/mark.rs` writes it:
 *
 *        63                      32  31       30                     0
 *       +--------------------------+--------+-------------------------+
 *       | "RINA" 0x52494e41        | stream | largest SDU in bytes    |
 *       +--------------------------+--------+-------------------------+
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MARK 0x52494e41u
#define STREAM 0x80000000u

/* What glibc calls its own read and write. */
extern ssize_t __read(int fd, void *buffer, size_t size);
extern ssize_t __write(int fd, const void *buffer, size_t size);
extern void __chk_fail(void) __attribute__((noreturn));

struct flow {
    size_t sdu_max;
    int is_stream;
};

/* Says whether fd is a flow, and of which kind. Leaves errno as it was. */
static int is_flow(int fd, struct flow *flow)
{
    uint64_t mark = 0;
    socklen_t size = sizeof(mark);
    int before = errno;

    if (getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &mark, &size) < 0) {
        errno = before;
        return 0;
    }
    flow->sdu_max = mark & (STREAM - 1);
    flow->is_stream = (mark & STREAM) != 0;
    return size == sizeof(mark) && mark >> 32 == MARK;
}

/* Adds up the lengths; -1 and EINVAL when they are no lengths. */
static ssize_t total_of(const struct iovec *parts, int count)
{
    size_t total = 0;
    int i;

    for (i = 0; i < count && count <= IOV_MAX; i++) {
        if (parts[i].iov_len > (size_t)SSIZE_MAX - total) {
            break;
        }
        total += parts[i].iov_len;
    }
    if (i != count) {
        errno = EINVAL;
        return -1;
    }
    return (ssize_t)total;
}

/*
 * Takes the SDU that was read to its end off the queue. Two readers at once each take one off for
 * each that they have ended, so that it does not matter whose is whose.
 */
static void take_off(int fd)
{
    int before = errno;
    char none;

    (void)recv(fd, &none, 0, MSG_DONTWAIT);
    errno = before;
}

/*
 * Tells an SDU of no bytes, which another kind of program may have sent, from the end of the flow:
 * behind it there is more, or nobody has hung up.
 */
static int is_empty_sdu(int fd)
{
    struct pollfd ready = { .fd = fd, .events = POLLRDHUP };
    int queued = 0;

    return (ioctl(fd, FIONREAD, &queued) == 0 && queued > 0) || poll(&ready, 1, 0) == 0;
}

static ssize_t receive(int fd, const struct iovec *parts, int count)
{
    int was_reset = 0;
    ssize_t total = total_of(parts, count);

    if (total <= 0) {
        return total;
    }
    for (;;) {
        struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count };
        ssize_t got = recvmsg(fd, &message, MSG_PEEK);

        if (got < 0 && errno == ECONNRESET && !was_reset) {
            /* The other end closed with SDUs unread: ours in its queue are still there. */
            was_reset = 1;
            continue;
        }
        if (got < 0 || (message.msg_flags & MSG_TRUNC)) {
            return got;
        }
        if (got == 0 && !is_empty_sdu(fd)) {
            return 0;
        }
        take_off(fd);
        if (got > 0) {
            return got;
        }
    }
}

/*
 * Sends an SDU. Once the other end has closed, it is discarded while SDUs are unread: a program may
 * say a last word before it reads the answer. The node does so with a flow to another system, and
 * counts what it discards; the two ends of a flow within one system are joined without it.
 */
static ssize_t send_sdu(int fd, const struct iovec *parts, int count)
{
    struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count };
    ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    int unread = 0;

    if (sent < 0 && (errno == ECONNRESET || errno == EPIPE)) {
        if (ioctl(fd, FIONREAD, &unread) == 0 && unread > 0) {
            return total_of(parts, count);
        }
        errno = EPIPE;
    }
    return sent;
}

/* Sends a stretch of a stream as SDUs of at most sdu_max bytes; gives what has been sent. */
static ssize_t send_stream(int fd, const struct iovec *parts, int count, size_t sdu_max)
{
    ssize_t sent = 0;
    size_t at = 0; /* bytes of parts[0] that have been sent */

    while (count > 0) {
        struct iovec sdu[16];
        int pieces = 0, part = 0;
        size_t length = 0, from = at;
        ssize_t result;

        while (pieces < 16 && part < count && length < sdu_max) {
            size_t left = parts[part].iov_len - from;
            size_t piece = left < sdu_max - length ? left : sdu_max - length;

            sdu[pieces].iov_base = (char *)parts[part].iov_base + from;
            sdu[pieces++].iov_len = piece;
            length += piece;
            from += piece;
            if (from == parts[part].iov_len) {
                part++;
                from = 0;
            }
        }
        if (length > 0) {
            result = send_sdu(fd, sdu, pieces);
            if (result < 0) {
                return sent > 0 ? sent : -1;
            }
            sent += result;
        }
        parts += part;
        count -= part;
        at = from;
    }
    return sent;
}

static ssize_t transmit(int fd, const struct flow *flow, const struct iovec *parts, int count)
{
    ssize_t total = total_of(parts, count);

    if (total <= 0) {
        return total;
    }
    if ((size_t)total <= flow->sdu_max) {
        return send_sdu(fd, parts, count);
    }
    if (flow->is_stream) {
        return send_stream(fd, parts, count, flow->sdu_max);
    }
    errno = EMSGSIZE;
    return -1;
}

ssize_t read(int fd, void *buffer, size_t size)
{
    struct iovec part = { .iov_base = buffer, .iov_len = size };
    struct flow flow;

    return is_flow(fd, &flow) ? receive(fd, &part, 1) : __read(fd, buffer, size);
}

ssize_t readv(int fd, const struct iovec *parts, int count)
{
    struct flow flow;

    return is_flow(fd, &flow) ? receive(fd, parts, count) : preadv2(fd, parts, count, -1, 0);
}

ssize_t write(int fd, const void *buffer, size_t size)
{
    struct iovec part = { .iov_base = (void *)buffer, .iov_len = size };
    struct flow flow;

    return is_flow(fd, &flow) ? transmit(fd, &flow, &part, 1) : __write(fd, buffer, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    struct flow flow;

    return is_flow(fd, &flow) ? transmit(fd, &flow, parts, count)
                              : pwritev2(fd, parts, count, -1, 0);
}

/* What read becomes in programs that are compiled with _FORTIFY_SOURCE. */
ssize_t __read_chk(int fd, void *buffer, size_t size, size_t room);

ssize_t __read_chk(int fd, void *buffer, size_t size, size_t room)
{
    if (size > room) {
        __chk_fail();
    }
    return read(fd, buffer, size);
}
