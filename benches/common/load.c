/* A load generator for HTTP/1.1 on the loopback interface, in one thread.
 *
 *   load [-c CONNECTIONS] [-d SECONDS] [-r RATE] [-k KEYS] [-m MOST] [-H LINE]... [-b BYTES] [-t] [-n] PORT PATH
 *
 * Without -r each connection sends its next request as soon as it has the response (a closed loop). With -r requests
 * arrive at random with that mean rate per second (an open loop, with the same arrivals in each run), and the latency of
 * one counts from its arrival, also if all connections are in use, so that a proxy that stalls can't hide it.
 * -k sends the header X-Api-Key with that many values in turn, -H adds a header line, and -n opens a new connection for
 * each request. -m ends the load after that many responses. -b makes the requests POST with a body of that many bytes, with
 * -t as one chunk.
 *
 * Output, in one line of JSON: seconds, the responses by class of status, failed connections, and the median, 99th
 * percentile and maximum of the latency of the responses with status 200, in microseconds. `late` counts the arrivals that
 * this program itself has served more than 1 ms late, because it had too little CPU time.
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

#define HEAD_BYTES 16384
#define READ_BYTES 65536
#define MOST_LATENCIES 20000000L
#define MOST_WAITING (1 << 20)

typedef struct {
    int fd, is_busy, status;
    double since;
    /* The head of the response as far as it has come, and the bytes of the body that are missing. */
    char head[HEAD_BYTES];
    long head_length, missing;
} connection;

static int port, key_count = 0, is_fresh = 0, is_chunked = 0, events, timer;
static long connection_count = 64, most = 0, done;
static double seconds = 2, rate = 0;
static char request[2 * HEAD_BYTES];
static size_t request_length, key_at;
static long sent, classes[6], ok, failed, late;
static connection *connections, **idle;
static long idle_count;
static uint32_t *latencies;
/* Arrivals that wait for a connection, a ring. */
static double *waiting;
static long waiting_from, waiting_count;

/* Exponentially distributed times between arrivals. */
static double until_next_arrival(void) { return -log(uniform()) / rate; }

static void open_connection(connection *it) {
    struct sockaddr_in address = loopback(port);
    it->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (it->fd < 0) fail("socket");
    send_at_once(it->fd);
    for (int tries = 0; connect(it->fd, (struct sockaddr *)&address, sizeof address) < 0; tries++) {
        if (tries == 200) fail("connect");
        failed++;
        usleep(1000);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    if (epoll_ctl(events, EPOLL_CTL_ADD, it->fd, &event) < 0) fail("epoll_ctl");
}

static void send_request(connection *it, double since) {
    if (it->fd < 0) open_connection(it);
    if (key_count) {
        char digits[12];
        snprintf(digits, sizeof digits, "%07d", (int)(sent % key_count));
        memcpy(request + key_at, digits, 7);
    }
    sent++;
    it->is_busy = 1;
    it->since = since;
    it->head_length = it->missing = 0;
    it->status = 0;
    if (send(it->fd, request, request_length, MSG_NOSIGNAL) != (ssize_t)request_length) {
        /* The proxy has closed the connection; the read finds the end. */
        if (errno != EPIPE && errno != ECONNRESET) fail("send");
    }
}

/* After a response: the next request of a closed loop, or the one that waits longest. */
static void proceed(connection *it, double time) {
    it->is_busy = 0;
    if (is_fresh && it->fd >= 0) {
        close(it->fd);
        it->fd = -1;
    }
    if (rate == 0) {
        send_request(it, time);
    } else if (waiting_count) {
        double since = waiting[waiting_from];
        waiting_from = (waiting_from + 1) % MOST_WAITING;
        waiting_count--;
        send_request(it, since);
    } else {
        idle[idle_count++] = it;
    }
}

static void finish(connection *it, double time) {
    classes[it->status / 100]++;
    done++;
    if (it->status == 200 && ok < MOST_LATENCIES) latencies[ok++] = (uint32_t)((time - it->since) * 1e6);
    proceed(it, time);
}

static void reconnect(connection *it) {
    close(it->fd);
    it->fd = -1;
    if (it->is_busy) {
        failed++;
        proceed(it, monotonic());
    }
}

/* Reads the head: the status, and the length of the body after `end`. */
static void read_head(connection *it, char *end) {
    *end = 0;
    it->status = atoi(it->head + 9);
    if (it->status < 100 || it->status > 599) {
        fprintf(stderr, "load: no status in %s\n", it->head);
        exit(1);
    }
    char *length = strcasestr(it->head, "\ncontent-length:");
    if (!length && it->status != 204) {
        fprintf(stderr, "load: a response without Content-Length: %s\n", it->head);
        exit(1);
    }
    it->missing = (length ? atol(length + 16) : 0) - (it->head + it->head_length - end - 4);
}

static void receive(connection *it) {
    static char body[READ_BYTES];
    if (it->status) {
        ssize_t got = recv(it->fd, body, sizeof body, 0);
        if (got <= 0) return reconnect(it);
        it->missing -= got;
    } else {
        ssize_t got = recv(it->fd, it->head + it->head_length, HEAD_BYTES - 1 - it->head_length, 0);
        if (got <= 0) return reconnect(it);
        it->head_length += got;
        it->head[it->head_length] = 0;
        char *end = strstr(it->head, "\r\n\r\n");
        if (!end) return;
        read_head(it, end);
    }
    if (it->missing <= 0) finish(it, monotonic());
}

static void arrive(double since, double time) {
    if (time - since > 0.001) late++;
    if (idle_count) {
        send_request(idle[--idle_count], since);
    } else if (waiting_count < MOST_WAITING) {
        waiting[(waiting_from + waiting_count++) % MOST_WAITING] = since;
    }
}

static void run(double start) {
    struct epoll_event ready[256];
    double next = start + (rate ? until_next_arrival() : seconds);
    for (double time = start; time < start + seconds && (!most || done < most);) {
        if (rate) {
            struct itimerspec at = {.it_value = {(time_t)next, (long)((next - (time_t)next) * 1e9)}};
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        }
        int count = epoll_wait(events, ready, 256, 100);
        for (int i = 0; i < count; i++)
            if (ready[i].data.ptr) receive(ready[i].data.ptr);
        for (time = monotonic(); rate && next <= time; next += until_next_arrival()) arrive(next, time);
    }
}

static int by_size(const void *a, const void *b) {
    return (*(uint32_t *)a > *(uint32_t *)b) - (*(uint32_t *)a < *(uint32_t *)b);
}

static uint32_t percentile(double share) { return ok ? latencies[(long)(share * (ok - 1))] : 0; }

/* The request with these header lines, and a body of this many bytes. */
static void write_request(const char *path, char *headers, long body) {
    char frame[64] = "";
    if (key_count) strcat(headers, "X-Api-Key: k0000000\r\n");
    if (is_fresh) strcat(headers, "Connection: close\r\n");
    if (body && is_chunked) strcpy(frame, "Transfer-Encoding: chunked\r\n");
    else if (body) snprintf(frame, sizeof frame, "Content-Length: %ld\r\n", body);
    request_length = snprintf(request, HEAD_BYTES, "%s %s HTTP/1.1\r\nHost: bench.example\r\n%s%s\r\n",
                              body ? "POST" : "GET", path, headers, frame);
    if (key_count) key_at = strstr(request, "X-Api-Key: k") + 12 - request;
    if (body && is_chunked) request_length += sprintf(request + request_length, "%lx\r\n", body);
    memset(request + request_length, 'b', body);
    request_length += body;
    if (body && is_chunked) request_length += sprintf(request + request_length, "\r\n0\r\n\r\n");
}

int main(int count, char **arguments) {
    char headers[HEAD_BYTES / 2] = "";
    long body = 0;
    for (int option; (option = getopt(count, arguments, "c:d:r:k:m:H:b:tn")) != -1;) {
        if (option == 'c') connection_count = atol(optarg);
        else if (option == 'd') seconds = atof(optarg);
        else if (option == 'r') rate = atof(optarg);
        else if (option == 'k') key_count = atoi(optarg);
        else if (option == 'm') most = atol(optarg);
        else if (option == 'n') is_fresh = 1;
        else if (option == 't') is_chunked = 1;
        else if (option == 'b' && atol(optarg) <= HEAD_BYTES / 2) body = atol(optarg);
        else if (option == 'H' && strlen(headers) + strlen(optarg) + 3 < sizeof headers)
            strcat(strcat(headers, optarg), "\r\n");
        else return 2;
    }
    if (optind + 2 != count) return 2;
    port = atoi(arguments[optind]);
    write_request(arguments[optind + 1], headers, body);

    signal(SIGPIPE, SIG_IGN);
    events = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    epoll_ctl(events, EPOLL_CTL_ADD, timer, &event);
    connections = calloc(connection_count, sizeof *connections);
    idle = calloc(connection_count, sizeof *idle);
    latencies = malloc(MOST_LATENCIES * sizeof *latencies);
    waiting = malloc(MOST_WAITING * sizeof *waiting);
    for (long i = 0; i < connection_count; i++) {
        connections[i].fd = -1;
        if (!is_fresh) open_connection(&connections[i]);
    }
    double start = monotonic();
    for (long i = 0; i < connection_count; i++) proceed(&connections[i], start);
    run(start);
    double spent = monotonic() - start;
    qsort(latencies, ok, sizeof *latencies, by_size);
    printf("{\"seconds\": %.6f, \"1xx\": %ld, \"2xx\": %ld, \"3xx\": %ld, \"4xx\": %ld, \"5xx\": %ld, \"failed\": %ld, "
           "\"late\": %ld, \"p50\": %u, \"p99\": %u, \"max\": %u}\n",
           spent, classes[1], classes[2], classes[3], classes[4], classes[5], failed, late, percentile(0.5),
           percentile(0.99), percentile(1));
    return 0;
}
