/*
 * The POSIX-like API of RINA: names, flows, SDUs.
 *
 * A flow is a file descriptor: read(2) receives an SDU, write(2) sends one, poll(2) and select(2)
 * wait, fcntl(2) makes it non-blocking, close(2) deallocates it. A control descriptor holds the
 * names that an application has registered; it is readable when somebody asks for a flow, and
 * closing its last copy unregisters them.
 *
 * On a flow,
 *   read   gives at most one SDU; what did not fit stays for the next read. 0 is the end: the other
 *          end has closed, and everything that it sent has been read.
 *   write  sends one SDU of at most rina_flow_mss_get() bytes. More is EMSGSIZE or, without
 *          msg_boundaries, several SDUs; no bytes are no SDU. When the flow has ended, it is
 *          accepted and discarded while SDUs are unread; then EPIPE.
 *   both   wait, or give EAGAIN when non-blocking; a signal ends the wait with EINTR, always.
 *
 * Calls that return int give -1 and set errno when they fail. A DIF name may be NULL or "", which
 * leaves the choice to the system. An application name is `process|instance|entity|instance`, where
 * empty parts at the end and their bars may be left out.
 *
 * Programs that were written for the API of rlite compile with this header as they are.
 * docs/reference/c-api.md has every errno value and the differences that remain.
 *
 * Link with -lrina: pkg-config --cflags --libs rina
 */
#ifndef RINA_API_H
#define RINA_API_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an application asks of a flow. */
struct rina_flow_spec {
#define RINA_FLOW_SPEC_VERSION 2
#define RINA_FLOW_SPEC_LOSS_MAX 10000 /* max_loss of a flow that may lose every SDU */
    uint32_t version;           /* RINA_FLOW_SPEC_VERSION, else EINVAL */
    uint32_t max_delay;         /* microseconds; 0: any */
    uint64_t max_sdu_gap;       /* SDUs that may be lost in a row; all ones: any, 0: none */
    uint64_t avg_bandwidth;     /* bits per second; 0: any */
    uint16_t max_loss;          /* 1/10000: 0 none, RINA_FLOW_SPEC_LOSS_MAX any */
    uint8_t in_order_delivery;  /* 1: SDUs arrive in order */
    uint8_t msg_boundaries;     /* 1: boundaries of SDUs are kept; 0: a stream of bytes */
    uint32_t max_jitter;        /* microseconds; 0: any */
};

/* Flags. */
#define RINA_F_NOWAIT 1 /* give a descriptor that is readable when the answer is there */
#define RINA_F_NORESP 2 /* give a handle for rina_flow_respond() instead of a flow */

/* Opens a control descriptor. */
int rina_open(void);

/*
 * Registers local_appl in a DIF, or in all. With RINA_F_NOWAIT gives a descriptor for
 * rina_register_wait(), else 0. A name that this control descriptor has already is no error.
 */
int rina_register(int fd, const char *dif_name, const char *local_appl, int flags);

/* Unregisters what rina_register() registered with the same names. Flags as there. */
int rina_unregister(int fd, const char *dif_name, const char *local_appl, int flags);

/* Completes a call with RINA_F_NOWAIT and closes wfd. After EAGAIN or EINTR wfd stays open. */
int rina_register_wait(int fd, int wfd);

/*
 * Waits for a request for a flow. Gives the flow, or with RINA_F_NORESP a handle. *remote_appl,
 * when remote_appl is not NULL, becomes the name of the one who asks, to be freed with free(3).
 * *spec, when spec is not NULL, must have its version set and becomes what was asked for.
 */
int rina_flow_accept(int fd, char **remote_appl, struct rina_flow_spec *spec, unsigned int flags);

/*
 * Answers a request: response 0 accepts and gives the flow, any other value refuses and gives 0.
 */
int rina_flow_respond(int fd, int handle, int response);

/*
 * Allocates a flow from local_appl, which need not be registered, to remote_appl. A NULL flowspec
 * asks for nothing. Gives the flow, or with RINA_F_NOWAIT a descriptor for rina_flow_alloc_wait().
 */
int rina_flow_alloc(const char *dif_name, const char *local_appl, const char *remote_appl,
                    const struct rina_flow_spec *flowspec, unsigned int flags);

/* Gives the flow and closes wfd. After EAGAIN or EINTR wfd stays open. */
int rina_flow_alloc_wait(int wfd);

/* Fills in a specification that asks for nothing. */
void rina_flow_spec_unreliable(struct rina_flow_spec *spec);

/* The name that this call had before. */
#define rina_flow_spec_default rina_flow_spec_unreliable

/* The largest SDU in bytes that one write(2) sends; 0 and errno when fd is not a flow. */
unsigned int rina_flow_mss_get(int fd);

#ifdef __cplusplus
}
#endif

#endif /* RINA_API_H */
