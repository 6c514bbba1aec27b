/*
 * The open loop of bench/load/beat.py: requests are due at equal intervals, round-robin over the lanes, one in flight on each.
 * It takes a third of the processor time of the same loop in Python, which a server on the same machine would miss.
 */
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 1024
#define STOP UINT32_MAX
#define STALLED_NS 30000000000LL
/* How long it sleeps at least: a system call for each request would take more of the machine than the server does. */
#define TICK_NS 250000

struct lane {
    int fd;
    int request_bytes;
    int answer_bytes;
    const char *request;
    const char *answer;
    /* The state of the lane, 0 at first. */
    int in_flight;
    int received;
    int64_t behind;
    int64_t due_ns;
};

/* Counts by latency; the last one has all that are longer. */
struct counts {
    int64_t step_ns;
    int64_t length;
    uint32_t *latencies;
    uint32_t *late;
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void count(const struct counts *counts, uint32_t *into, int64_t ns)
{
    int64_t place = ns / counts->step_ns;
    into[place < 0 ? 0 : place < counts->length ? place : counts->length - 1]++;
}

static int send_request(struct lane *lane, int64_t due_ns)
{
    lane->due_ns = due_ns;
    lane->in_flight = 1;
    return send(lane->fd, lane->request, lane->request_bytes, MSG_NOSIGNAL) == lane->request_bytes ? 0 : -1;
}

/* 1 if the answer is complete, 0 if not, -1 if it differs or the connection has ended. */
static int receive(struct lane *lane)
{
    char data[4096];
    ssize_t got = recv(lane->fd, data, sizeof data, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0 || got > lane->answer_bytes - lane->received || memcmp(data, lane->answer + lane->received, got))
        return -1;
    lane->received += got;
    if (lane->received < lane->answer_bytes)
        return 0;
    lane->received = 0;
    return 1;
}

/*
 * Send requests until `seconds` have passed or `stop_fd` has input, and then wait for the answers in flight. A rate of 0 keeps
 * one request in flight on each lane. Returns the number of answers; -1 if a lane fails.
 */
int64_t beat(struct lane *lanes, int64_t lane_count, double rate, double seconds, int stop_fd, const struct counts *counts)
{
    struct epoll_event events[EVENTS];
    int64_t answers = 0, issued = 0, in_flight = 0, begun = now_ns(), heard = begun;
    int64_t end = seconds > 0 ? begun + (int64_t)(seconds * 1e9) : INT64_MAX;
    double step = rate > 0 ? 1e9 / rate : 0;
    int poller = epoll_create1(EPOLL_CLOEXEC), is_over = 0, failed = 0;

    for (int64_t i = 0; i < lane_count; i++) {
        struct epoll_event wanted = {EPOLLIN, {.u32 = (uint32_t)i}};
        failed |= epoll_ctl(poller, EPOLL_CTL_ADD, lanes[i].fd, &wanted);
    }
    if (stop_fd >= 0) {
        struct epoll_event wanted = {EPOLLIN, {.u32 = STOP}};
        failed |= epoll_ctl(poller, EPOLL_CTL_ADD, stop_fd, &wanted);
    }
    while (!failed && (!is_over || in_flight)) {
        int64_t now = now_ns(), due;
        is_over |= now >= end;
        while (!is_over && (due = begun + (int64_t)(issued * step)) <= now && (rate > 0 || issued < lane_count)) {
            struct lane *lane = &lanes[issued++ % lane_count];
            if (lane->in_flight) {
                lane->behind++;
                continue;
            }
            now = now_ns();
            count(counts, counts->late, now - due);
            failed |= send_request(lane, due);
            in_flight++;
        }
        if (rate > 0 && !is_over) {
            struct timespec wait = {0, TICK_NS};
            nanosleep(&wait, NULL);
        }
        int ready = epoll_wait(poller, events, EVENTS, rate > 0 && !is_over ? 0 : 100);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.u32 == STOP) {
                is_over = 1;
                epoll_ctl(poller, EPOLL_CTL_DEL, stop_fd, NULL);
                continue;
            }
            struct lane *lane = &lanes[events[i].data.u32];
            int received = receive(lane);
            failed |= received < 0;
            if (received <= 0)
                continue;
            heard = now_ns();
            count(counts, counts->latencies, heard - lane->due_ns);
            answers++;
            if (is_over || (rate > 0 && !lane->behind)) {
                lane->in_flight = 0;
                in_flight--;
            } else if (rate > 0) {
                lane->behind--;
                failed |= send_request(lane, lane->due_ns + (int64_t)(lane_count * step));
            } else {
                failed |= send_request(lane, heard);
            }
        }
        failed |= in_flight && now_ns() - heard > STALLED_NS;
    }
    close(poller);
    return failed ? -1 : answers;
}
