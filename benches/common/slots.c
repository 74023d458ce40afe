/* Servers with slots: each works at as many requests at a time as it has slots, the others wait in the order of their arrival.
 *
 *   slots [-s SLOTS] [-m MILLISECONDS] [-c] PORT...
 *
 * There is one server for each port of the loopback interface. Work is sleep, which takes exponentially distributed times with
 * the mean -m, or always that time with -c. A server works at a request to its end even if the client has left, and responds
 * with 128 bytes.
 *
 * `GET /set/SPEED/MILLISECONDS` to any port changes all servers: SPEED times as fast as at the start, from now on, and each
 * response is sent that much after its work, during which it takes no slot.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "loopback.h"

#define HEAD_BYTES 4096
#define BODY_BYTES 128

typedef struct server {
    int busy;
    /* Requests that wait for a slot. */
    struct request *first, **last;
} server;

typedef struct connection {
    /* None for a listener. */
    struct request *request;
    int fd, is_listener;
    server *server;
    int length;
    char head[HEAD_BYTES];
} connection;

typedef struct request {
    struct request *next;
    server *server;
    /* None if the client has left. */
    connection *client;
    double due;
} request;

/* Requests by the time at which they are due, the earliest one first. */
typedef struct {
    request **items;
    long count, size;
} heap;

static int events, timer, slots = 4, is_constant = 0;
static double mean = 0.02, speed = 1, delay = 0;
static heap working, delayed;
static char response[512];
static int response_length;

static double exponential(void) { return -log(uniform()); }

static void push(heap *heap, request *it) {
    if (heap->count == heap->size) {
        heap->size = heap->size ? 2 * heap->size : 256;
        heap->items = realloc(heap->items, heap->size * sizeof *heap->items);
    }
    long at = heap->count++;
    for (; at > 0 && heap->items[(at - 1) / 2]->due > it->due; at = (at - 1) / 2) heap->items[at] = heap->items[(at - 1) / 2];
    heap->items[at] = it;
}

static request *pop(heap *heap) {
    request *first = heap->items[0], *it = heap->items[--heap->count];
    long at = 0;
    for (long child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && heap->items[child + 1]->due < heap->items[child]->due) child++;
        if (heap->items[child]->due >= it->due) break;
        heap->items[at] = heap->items[child];
    }
    heap->items[at] = it;
    return first;
}

static connection *watch(int fd, server *server, int is_listener) {
    connection *it = calloc(1, sizeof *it);
    *it = (connection){.fd = fd, .server = server, .is_listener = is_listener};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    if (epoll_ctl(events, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
    return it;
}

static void accept_connections(connection *listener) {
    for (int fd; (fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
        send_at_once(fd);
        watch(fd, listener->server, 0);
    }
}

static void start(request *it, double time) {
    it->server->busy++;
    it->due = time + mean / speed * (is_constant ? 1 : exponential());
    push(&working, it);
}

static void respond(request *it) {
    if (it->client) {
        it->client->request = NULL;
        /* If the client is about to leave, the end of its connection is read next. */
        (void)!send(it->client->fd, response, response_length, MSG_NOSIGNAL);
    }
    free(it);
}

/* The work at a request has ended: the next one gets its slot. */
static void finish(request *it, double time) {
    server *server = it->server;
    server->busy--;
    if (server->first) {
        request *next = server->first;
        server->first = next->next;
        if (!server->first) server->last = &server->first;
        start(next, time);
    }
    if (delay == 0) return respond(it);
    it->due = time + delay;
    push(&delayed, it);
}

static void set(const char *values, double time) {
    double before = speed;
    sscanf(values, "%lf/%lf", &speed, &delay);
    delay /= 1000;
    /* All change by the same factor, so that their order stays. */
    for (long i = 0; i < working.count; i++) working.items[i]->due = time + (working.items[i]->due - time) * before / speed;
}

static void receive(connection *from, double time) {
    ssize_t length = recv(from->fd, from->head + from->length, HEAD_BYTES - 1 - from->length, 0);
    if (length < 0 && errno == EAGAIN) return;
    if (length <= 0) {
        if (from->request) from->request->client = NULL;
        close(from->fd);
        free(from);
        return;
    }
    from->length += length;
    from->head[from->length] = 0;
    if (!strstr(from->head, "\r\n\r\n")) return;
    from->length = 0;
    request *it = calloc(1, sizeof *it);
    *it = (request){.server = from->server, .client = from};
    from->request = it;
    if (strncmp(from->head, "GET /set/", 9) == 0) {
        set(from->head + 9, time);
        respond(it);
    } else if (from->server->busy < slots) {
        start(it, time);
    } else {
        *from->server->last = it;
        from->server->last = &it->next;
    }
}

static void set_timer(void) {
    double due = INFINITY;
    if (working.count) due = working.items[0]->due;
    if (delayed.count) due = fmin(due, delayed.items[0]->due);
    struct itimerspec at = {0};
    if (due < INFINITY) at.it_value = (struct timespec){(time_t)due, (long)((due - (time_t)due) * 1e9)};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void listen_on(int port) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = loopback(port);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 4096) < 0) fail("listen");
    server *it = calloc(1, sizeof *it);
    it->last = &it->first;
    watch(fd, it, 1);
}

int main(int count, char **arguments) {
    for (int option; (option = getopt(count, arguments, "s:m:c")) != -1;) {
        if (option == 's') slots = atoi(optarg);
        else if (option == 'm') mean = atof(optarg) / 1000;
        else if (option == 'c') is_constant = 1;
        else return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    response_length = snprintf(response, sizeof response, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%0*d", BODY_BYTES, BODY_BYTES, 0);
    events = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event tick = {.events = EPOLLIN | EPOLLET}, ready[256];
    epoll_ctl(events, EPOLL_CTL_ADD, timer, &tick);
    for (int i = optind; i < count; i++) listen_on(atoi(arguments[i]));
    for (;;) {
        set_timer();
        int got = epoll_wait(events, ready, 256, -1);
        for (int i = 0; i < got; i++) {
            connection *from = ready[i].data.ptr;
            if (from && from->is_listener) accept_connections(from);
            else if (from) receive(from, monotonic());
        }
        for (double time = monotonic(); working.count && working.items[0]->due <= time;) finish(pop(&working), time);
        for (double time = monotonic(); delayed.count && delayed.items[0]->due <= time;) respond(pop(&delayed));
    }
}
