/* Code that the programs of the measurements share: errors, the clock, random numbers and loopback addresses. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

/* The state of the random numbers, the same in each run. */
static uint64_t random_state = 88172645463325252ull;

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}

/* Seconds of the monotonic clock. */
static inline double monotonic(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* A number above 0 and at most 1, by xorshift. */
static inline double uniform(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return ((random_state >> 11) + 1) / 9007199254740993.0;
}

static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline void send_at_once(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}
