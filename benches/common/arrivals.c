/* An open loop of requests over HTTP/1.1 on the loopback interface, with a rate that changes with time.
 *
 *   arrivals [-d SECONDS] [-t TIMEOUT] [-s SEED] PORT GROUP...
 *   GROUP    PATH,FIRST,CLIENTS,AT=RATE[,AT=RATE]...
 *
 * Each group is a Poisson process: RATE requests a second from the second AT on. A request is from one of its clients at random;
 * they have the addresses 127.0.1.FIRST and following, and kept connections, as many as they need. A client gives up after
 * TIMEOUT seconds and closes the connection.
 *
 * Output: a line for each request in the order of their arrival, with the index of the group, the second of its arrival, the
 * status of the response (0: given up), and the seconds from the arrival to the end of the response. On standard error: how many
 * requests this program itself has sent more than 2 ms late, because it had too little CPU time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "loopback.h"

#define HEAD_BYTES 4096
#define MOST_REQUESTS 1000000
#define MOST_GROUPS 8
#define MOST_STEPS 8
#define MOST_CLIENTS 256
#define LATE 0.002

typedef struct connection {
    /* The neighbours among the idle connections of the client. */
    struct connection *next, **at;
    /* None while it is idle. */
    struct request *request;
    /* `is_new` until its first request is sent, which has to wait while the proxy does not accept connections. */
    int fd, client, status, closes, is_used, is_new;
    long length, missing;
    char head[HEAD_BYTES];
} connection;

typedef struct request {
    connection *connection;
    double since, took;
    int group, client, status, is_done;
} request;

typedef struct {
    char path[64];
    int first, clients, steps;
    double at[MOST_STEPS], rate[MOST_STEPS], next;
} group;

static int port, events, timer, group_count;
static double seconds = 10, timeout = 2, origin;
static group groups[MOST_GROUPS];
static request *requests;
/* Requests before `open_from` have ended. */
static long request_count, open_from, late;
static connection *idle[MOST_CLIENTS];

static double now(void) { return monotonic() - origin; }

static void set_idle(connection *it) {
    connection **first = &idle[it->client];
    it->next = *first;
    it->at = first;
    if (it->next) it->next->at = &it->next;
    *first = it;
}

static void set_busy(connection *it) {
    *it->at = it->next;
    if (it->next) it->next->at = it->at;
}

static void discard(connection *it) {
    if (!it->request) set_busy(it);
    close(it->fd);
    free(it);
}

static connection *connect_from(int client) {
    connection *it = calloc(1, sizeof *it);
    int one = 1;
    it->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    it->client = client;
    it->is_new = 1;
    if (it->fd < 0) fail("socket");
    send_at_once(it->fd);
    setsockopt(it->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    struct sockaddr_in own = {.sin_family = AF_INET}, proxy = loopback(port);
    own.sin_addr.s_addr = htonl(0x7f000100 + client);
    if (bind(it->fd, (struct sockaddr *)&own, sizeof own) < 0) fail("bind");
    if (connect(it->fd, (struct sockaddr *)&proxy, sizeof proxy) < 0 && errno != EINPROGRESS) fail("connect");
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = it};
    if (epoll_ctl(events, EPOLL_CTL_ADD, it->fd, &event) < 0) fail("epoll_ctl");
    return it;
}

static void send_head(connection *it) {
    char text[256];
    int length = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: bench.example\r\n\r\n", groups[it->request->group].path);
    /* If the proxy has closed the connection, its end is read next. */
    (void)!send(it->fd, text, length, MSG_NOSIGNAL);
}

static void send_request(request *it) {
    connection *via = idle[it->client];
    if (via) set_busy(via);
    else via = connect_from(it->client);
    it->connection = via;
    via->request = it;
    via->length = via->missing = via->status = 0;
    if (!via->is_new) send_head(via);
}

static void end_request(request *it, int status) {
    it->is_done = 1;
    it->status = status;
    it->took = now() - it->since;
    it->connection = NULL;
    while (open_from < request_count && requests[open_from].is_done) open_from++;
}

/* The proxy has closed the connection. A request that it has not read, on a kept connection, is sent again. */
static void lose(connection *it) {
    request *open = it->request;
    int is_again = it->is_used && it->length == 0;
    discard(it);
    if (open && is_again) send_request(open);
    else if (open) end_request(open, 599);
}

static void read_head(connection *it, char *end) {
    *end = 0;
    it->status = atoi(it->head + 9);
    char *length = strcasestr(it->head, "\ncontent-length:");
    if (it->status < 200 || it->status > 599 || !length) {
        fprintf(stderr, "arrivals: unexpected response: %s\n", it->head);
        exit(1);
    }
    it->closes = strcasestr(it->head, "\nconnection: close") != NULL;
    it->missing = atol(length + 16) - (it->head + it->length - end - 4);
}

static void connected(connection *it) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    epoll_ctl(events, EPOLL_CTL_MOD, it->fd, &event);
    it->is_new = 0;
    send_head(it);
}

static void receive(connection *it) {
    static char body[65536];
    ssize_t got = it->status ? recv(it->fd, body, sizeof body, 0)
                             : recv(it->fd, it->head + it->length, HEAD_BYTES - 1 - it->length, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0 || !it->request) return lose(it);
    if (it->status) {
        it->missing -= got;
    } else {
        it->length += got;
        it->head[it->length] = 0;
        char *end = strstr(it->head, "\r\n\r\n");
        if (!end) return;
        read_head(it, end);
    }
    if (it->missing > 0) return;
    end_request(it->request, it->status);
    if (it->closes) return discard(it);
    it->request = NULL;
    it->is_used = 1;
    set_idle(it);
}

static double rate_at(group *it, double time) {
    double rate = 0;
    for (int i = 0; i < it->steps && it->at[i] <= time; i++) rate = it->rate[i];
    return rate;
}

/* The next arrival after a time: a process without memory may begin anew at each change of the rate. */
static double arrival_after(group *it, double time) {
    for (;;) {
        double rate = rate_at(it, time), change = INFINITY;
        for (int i = it->steps - 1; i >= 0 && it->at[i] > time; i--) change = it->at[i];
        double next = rate > 0 ? time - log(uniform()) / rate : INFINITY;
        if (next < change || change == INFINITY) return next;
        time = change;
    }
}

static void arrive(int index, double since) {
    if (request_count == MOST_REQUESTS) fail("too many requests");
    request *it = &requests[request_count++];
    *it = (request){.group = index, .since = since, .client = groups[index].first + (int)(uniform() * groups[index].clients)};
    if (now() - since > LATE) late++;
    send_request(it);
}

static group *next_group(void) {
    group *first = groups;
    for (group *it = groups; it < groups + group_count; it++)
        if (it->next < first->next) first = it;
    return first;
}

static void give_up(double time) {
    for (long i = open_from; i < request_count && requests[i].since + timeout <= time; i++) {
        if (requests[i].is_done) continue;
        discard(requests[i].connection);
        end_request(&requests[i], 0);
    }
}

static void run(void) {
    struct epoll_event ready[256];
    for (double time = 0; time < seconds || open_from < request_count;) {
        double due = origin + fmin(next_group()->next, time + 0.02);
        struct itimerspec at = {.it_value = {(time_t)due, (long)((due - (time_t)due) * 1e9)}};
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        int count = epoll_wait(events, ready, 256, 100);
        for (int i = 0; i < count; i++)
            if (ready[i].data.ptr) {
                connection *it = ready[i].data.ptr;
                if (it->is_new) connected(it);
                else receive(it);
            }
        time = now();
        for (group *it; (it = next_group())->next <= time && it->next < seconds;) {
            arrive(it - groups, it->next);
            it->next = arrival_after(it, it->next);
        }
        if (next_group()->next >= seconds)
            for (int i = 0; i < group_count; i++) groups[i].next = INFINITY;
        give_up(time);
    }
}

static void read_group(char *text) {
    group *it = &groups[group_count++];
    char *part = strtok(text, ",");
    snprintf(it->path, sizeof it->path, "%s", part);
    it->first = atoi(strtok(NULL, ","));
    it->clients = atoi(strtok(NULL, ","));
    while (it->steps < MOST_STEPS && (part = strtok(NULL, ","))) {
        if (sscanf(part, "%lf=%lf", &it->at[it->steps], &it->rate[it->steps]) != 2) exit(2);
        it->steps++;
    }
    if (it->first + it->clients > MOST_CLIENTS) exit(2);
    it->next = arrival_after(it, 0);
}

int main(int count, char **arguments) {
    for (int option; (option = getopt(count, arguments, "d:t:s:")) != -1;) {
        if (option == 'd') seconds = atof(optarg);
        else if (option == 't') timeout = atof(optarg);
        else if (option == 's') random_state += 1000003 * strtoull(optarg, NULL, 10);
        else return 2;
    }
    if (optind + 2 > count || count - optind - 1 > MOST_GROUPS) return 2;
    port = atoi(arguments[optind]);
    for (int i = optind + 1; i < count; i++) read_group(arguments[i]);
    requests = calloc(MOST_REQUESTS, sizeof *requests);
    signal(SIGPIPE, SIG_IGN);
    events = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    epoll_ctl(events, EPOLL_CTL_ADD, timer, &event);
    origin = now();
    run();
    for (request *it = requests; it < requests + request_count; it++)
        printf("%d %.6f %d %.6f\n", it->group, it->since, it->status, it->took);
    fprintf(stderr, "%ld\n", late);
    return 0;
}
