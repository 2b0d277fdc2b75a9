/*
 * As rinaperf's client ends: it says "stop" and then reads the result, which the server has sent
 * before it closed the flow. The argument is the server's name. Waits for a line before it reads.
 */
#define _GNU_SOURCE
#include "check.h"

int main(int count, char **arguments)
{
    struct rina_flow_spec spec;
    char result[16];
    int flow, i;

    CHECK(count == 2);
    rina_flow_spec_default(&spec);
    CHECK(spec.max_loss == RINA_FLOW_SPEC_LOSS_MAX && spec.version == RINA_FLOW_SPEC_VERSION);
    flow = rina_flow_alloc(NULL, "client", arguments[1], &spec, 0);
    CHECK(flow >= 0);
    CHECK(write(flow, "begin", 5) == 5);
    CHECK(has(flow, POLLRDHUP, LONG_MS));
    for (i = 0; i < 5; i++) {
        CHECK(write(flow, "stop", 4) == 4);
    }
    printf("written\n");
    CHECK(fflush(stdout) == 0 && getchar() == '\n');
    CHECK(read(flow, result, sizeof(result)) == 6 && memcmp(result, "result", 6) == 0);
    CHECK(read(flow, result, sizeof(result)) == 0);
    printf("as it should be\n");
    return 0;
}
