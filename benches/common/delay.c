/* A relay on the loopback interface that delays what passes it, in each direction, as a network would.
 *
 *   delay LISTEN_PORT PORT MILLISECONDS
 *
 * Without a delay (0) it parses nothing and copies nothing beside what the kernel does: what a proxy costs at least.
 *
 * Pieces of a connection keep their order, and any number of them may be under way. There is no bound on what waits, since
 * both sides are programs of the same measurement.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "loopback.h"

#define READ_BYTES 65536

/* One direction of a connection: what is read from `fd` goes to that of the peer. */
typedef struct end {
    int fd, is_ended;
    struct end *peer;
} end;

/* A piece that is under way; no bytes are the end of the stream. */
typedef struct piece {
    struct piece *next;
    end *to;
    double due;
    ssize_t length;
    char bytes[];
} piece;

static int events, port;
static double delay;
/* The delay is the same for all, so that pieces are due in the order of their arrival. */
static piece *first, **last = &first;

static end *watch(int fd) {
    send_at_once(fd);
    end *it = calloc(1, sizeof *it);
    it->fd = fd;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    if (epoll_ctl(events, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
    return it;
}

static void accept_connection(int listener) {
    int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC), server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = loopback(port);
    if (client < 0 || server < 0 || connect(server, (struct sockaddr *)&address, sizeof address) < 0) {
        close(client);
        close(server);
        return;
    }
    end *a = watch(client), *b = watch(server);
    a->peer = b;
    b->peer = a;
}

static void send_all(end *to, const char *bytes, ssize_t length) {
    for (ssize_t at = 0, done; at < length; at += done) {
        done = send(to->fd, bytes + at, length - at, MSG_NOSIGNAL);
        if (done <= 0) break;
    }
}

static void forward(end *from, const char *bytes, ssize_t length) {
    if (length) return send_all(from->peer, bytes, length);
    shutdown(from->peer->fd, SHUT_WR);
    epoll_ctl(events, EPOLL_CTL_DEL, from->fd, NULL);
    from->is_ended = 1;
    if (!from->peer->is_ended) return;
    close(from->fd);
    close(from->peer->fd);
}

static void receive(end *from) {
    static char bytes[READ_BYTES];
    if (from->is_ended) return;
    ssize_t length = recv(from->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (length < 0 && errno == EAGAIN) return;
    if (length < 0) length = 0;
    if (delay == 0) return forward(from, bytes, length);
    piece *it = malloc(sizeof *it + length);
    *it = (piece){.to = from->peer, .due = monotonic() + delay, .length = length};
    memcpy(it->bytes, bytes, length);
    *last = it;
    last = &it->next;
    /* The descriptors of ended connections stay open until the end of the measurement. */
    if (length == 0) {
        epoll_ctl(events, EPOLL_CTL_DEL, from->fd, NULL);
        from->is_ended = 1;
    }
}

static void deliver(void) {
    for (double time = monotonic(); first && first->due <= time;) {
        piece *it = first;
        first = it->next;
        if (!first) last = &first;
        if (it->length == 0) shutdown(it->to->fd, SHUT_WR);
        send_all(it->to, it->bytes, it->length);
        free(it);
    }
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    port = atoi(arguments[2]);
    delay = atof(arguments[3]) / 1000;
    signal(SIGPIPE, SIG_IGN);
    events = epoll_create1(EPOLL_CLOEXEC);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = loopback(atoi(arguments[1]));
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 1024) < 0) fail("listen");
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN}, tick = {.events = EPOLLIN | EPOLLET, .data.ptr = &timer}, ready[256];
    epoll_ctl(events, EPOLL_CTL_ADD, listener, &event);
    epoll_ctl(events, EPOLL_CTL_ADD, timer, &tick);
    for (;;) {
        if (first) {
            double due = first->due;
            struct itimerspec at = {.it_value = {(time_t)due, (long)((due - (time_t)due) * 1e9)}};
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        }
        int got = epoll_wait(events, ready, 256, -1);
        for (int i = 0; i < got; i++) {
            if (!ready[i].data.ptr) accept_connection(listener);
            else if (ready[i].data.ptr != &timer) receive(ready[i].data.ptr);
        }
        deliver();
    }
}
