/* A load generator for NATS servers that is never the limit: one thread, non-blocking sockets, no allocation per message.
 *
 *   load publish PORT key=value...     publish and count: acks of a stream, or deliveries to subscribers, or nothing;
 *                                      and consume, alone (connections=0) or at the same time
 *   load latency PORT key=value...     publish one message at a time, wait for its ack, and note how long that took
 *   load connect PORT key=value...     connect, log in, wait for the PONG and leave, one connection after the other
 *
 * Keys: count (messages in all), connections, window (unacked messages of a connection; 0: no acks are asked for),
 * size (payload), subject (a prefix), subjects (how many; message i takes a scattered one, all of them are used), ids
 * (1: each message has its Nats-Msg-Id), expect (1: each message has the last sequence of its subject, which must be
 * larger in number than the window), subscribers (connections that get every message), queue (1: each message goes to
 * one of them), consumers (connections that share what there is of the consumer C of the stream LOAD), deliver (a
 * subject: they are pushed to there, and answer flow control; without it they pull), batch (of a pull), pulls (that
 * overlap), acks (1: each message is acknowledged, and the last one's ack is answered before the clock stops: what was
 * sent before it is then done), user (the name and password to log in with), websocket (a port: publishers speak
 * WebSocket there, with a frame for each message; or, with listen=1, subscribers do), far (a port: subscribers are at
 * the server there, which is linked to the other one).
 * Requests are messages whose answers count as acks: body is a payload, and each # in body or subject stands for the
 * message's number below `subjects`, plus base. An answer with headers must be a message, not a status.
 * Prints one line of JSON. Any error from the server, and any connection that ends early, is an error here.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { OUT_SIZE_MIN = 1 << 18, IN_SIZE = 1 << 20, POOL_SIZE = 1 << 21, CONNECTIONS_MAX = 1024, IDLE_MS_MAX = 120000,
       LINE_SIZE_MAX = 1024, FRAME_HEAD_MAX = 8 };

static struct { /* what the command line says */
    long count, connections, window, size, subjects, ids, expect, subscribers, queue, consumers, batch, pulls, acks, base;
    long websocket, listen, far;
    const char *subject, *deliver, *body, *user;
    int port;
} opt = {.count = 1000, .connections = 1, .window = 1, .size = 128, .subjects = 1, .batch = 1, .pulls = 1, .subject = "bench"};

typedef enum { PUBLISHER, SUBSCRIBER, CONSUMER } Role;

typedef struct {
    int fd;
    Role role;
    long first, quota, sent, acked;          /* a publisher sends messages first .. first + quota - 1 */
    long got, asked;                         /* a consumer's messages, and how many it asked for */
    size_t received, expected;               /* bytes, of a subscriber */
    int is_websocket, head_size;
    unsigned char head[10];                  /* the beginning of a frame's header */
    uint64_t frame_left;                     /* bytes of the current frame that are still to come */
    int pinged, owes_pong, is_done;
    size_t out_start, out_end, in_start, in_end;
    char *out, in[IN_SIZE];
} Conn;

static char *pool;
static uint64_t run_id;
static uint64_t *last_seqs; /* by subject, as the acks told them */
static size_t out_size;

static void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "load: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    exit(1);
}

static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static char *put_number(char *p, uint64_t n) {
    char digits[20];
    int k = 0;
    do { digits[k++] = '0' + n % 10; } while (n /= 10);
    while (k) *p++ = digits[--k];
    return p;
}

static char *put_text(char *p, const char *text) {
    size_t size = strlen(text);
    memcpy(p, text, size);
    return p + size;
}

static uint64_t mix(uint64_t x) { /* splitmix64: any number, scattered */
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
}

static uint64_t number_of(long i) { /* the factor is prime: all subjects are met */
    return opt.subjects > 1 ? (uint64_t)i * 2654435761ULL % opt.subjects : 0;
}

/* A text in which # stands for a number. */
static char *put_template(char *p, const char *text, uint64_t n) {
    for (; *text; text++)
        if (*text == '#') p = put_number(p, n);
        else *p++ = *text;
    return p;
}

static char *put_headers(char *p, long i) {
    if (opt.ids) {
        p = put_text(p, "NATS/1.0\r\nNats-Msg-Id: ");
        uint64_t halves[2] = {mix(run_id), mix(i)};
        for (int h = 0; h < 2; h++)
            for (int k = 60; k >= 0; k -= 4) *p++ = "0123456789abcdef"[halves[h] >> k & 15];
        p = put_text(p, "\r\n\r\n");
    } else if (opt.expect) {
        p = put_text(p, "NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: ");
        p = put_text(put_number(p, last_seqs[number_of(i)]), "\r\n\r\n");
    }
    return p;
}

/* `PUB <subject>[.<n>] [_INBOX.load.<connection>.<i>] <size>` and the payload; HPUB with headers. */
static char *put_message(char *p, int connection, long i) {
    char headers[128], body[LINE_SIZE_MAX];
    uint64_t number = opt.base + (opt.subjects > 1 ? number_of(i) : (uint64_t)i);
    size_t headers_size = put_headers(headers, i) - headers, size = opt.size;
    if (opt.body) size = put_template(body, opt.body, number) - body;
    p = put_text(p, headers_size ? "HPUB " : "PUB ");
    p = put_template(p, opt.subject, number);
    if (opt.subjects > 1 && !opt.body && !strchr(opt.subject, '#')) {
        *p++ = '.';
        p = put_number(p, number);
    }
    *p++ = ' ';
    if (opt.window) {
        p = put_text(p, "_INBOX.load.");
        p = put_number(p, connection);
        *p++ = '.';
        p = put_number(p, i);
        *p++ = ' ';
    }
    if (headers_size) {
        p = put_number(p, headers_size);
        *p++ = ' ';
    }
    p = put_number(p, headers_size + size);
    p = put_text(p, "\r\n");
    memcpy(p, headers, headers_size);
    p += headers_size;
    memcpy(p, opt.body ? body : pool + mix(i) % (POOL_SIZE - opt.size), size);
    return put_text(p + size, "\r\n");
}

static size_t frame_size_max(void) { return opt.size + strlen(opt.subject) + 512 + (opt.body ? LINE_SIZE_MAX : 0); }

static void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n < 0) die("send: %s", strerror(errno));
        data += n, size -= n;
    }
}

/* Put a client's frame around the message at p + FRAME_HEAD_MAX, and have it at p. */
static char *put_frame(char *p, size_t size) {
    static const unsigned char key[8] = {0x37, 0xfa, 0x21, 0x3d, 0x37, 0xfa, 0x21, 0x3d};
    const char *from = p + FRAME_HEAD_MAX;
    uint64_t keys, word;
    if (size > 65535) die("a message of %zu bytes is too long for a frame", size);
    *p++ = (char)0x82;
    *p++ = (char)(0x80 | (size <= 125 ? size : 126));
    if (size > 125) *p++ = (char)(size >> 8), *p++ = (char)size;
    memcpy(p, key, 4), p += 4;
    memcpy(&keys, key, 8);
    for (; size >= 8; size -= 8, p += 8, from += 8) {
        memcpy(&word, from, 8);
        word ^= keys;
        memcpy(p, &word, 8);
    }
    for (size_t i = 0; i < size; i++) p[i] = from[i] ^ key[i];
    return p + size;
}

/* Take the headers of a server's frames out of what was received; how many bytes are left of it. */
static size_t unframe(Conn *c, char *data, size_t size) {
    char *p = data, *end = data + size, *out = data;
    while (p < end) {
        if (c->frame_left) {
            size_t n = c->frame_left < (size_t)(end - p) ? c->frame_left : (size_t)(end - p);
            memmove(out, p, n);
            p += n, out += n, c->frame_left -= n;
            continue;
        }
        c->head[c->head_size++] = *p++;
        if (c->head_size < 2) continue;
        int needed = c->head[1] == 127 ? 10 : c->head[1] == 126 ? 4 : 2;
        if (c->head_size < needed) continue;
        if ((c->head[0] & 0x7f) > 2) die("a frame that begins with %02x", c->head[0]);
        if (needed == 2) c->frame_left = c->head[1];
        for (int k = 2; k < needed; k++) c->frame_left = c->frame_left << 8 | c->head[k];
        c->head_size = 0;
    }
    return out - data;
}

static int put_connect(char *line, size_t size) {
    char login[256] = "";
    if (opt.user) snprintf(login, sizeof login, ",\"user\":\"%s\",\"pass\":\"%s\"", opt.user, opt.user);
    return snprintf(line, size, "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":true,\"headers\":true,\"protocol\":0%s}\r\n", login);
}

static void shake_hands(int fd) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    char answer[4096] = "";
    size_t got = 0;
    send_all(fd, request, sizeof request - 1);
    while (!memmem(answer, got, "\r\n\r\n", 4)) { /* byte by byte: what follows is for others */
        if (got == sizeof answer || recv(fd, answer + got, 1, 0) <= 0) die("no handshake: %.*s", (int)got, answer);
        got++;
    }
    if (memcmp(answer, "HTTP/1.1 101 ", 13)) die("no handshake: %.*s", (int)got, answer);
}

/* Connect, subscribe, and wait for the PONG that says that the server knows. */
static void greet(Conn *c, int number) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(opt.port)};
    int one = 1;
    char line[512], answer[65536];
    size_t got = 0;
    c->is_websocket = opt.websocket && c->role == (opt.listen ? SUBSCRIBER : PUBLISHER);
    if (c->is_websocket) address.sin_port = htons(opt.websocket);
    if (opt.far && c->role == SUBSCRIBER) address.sin_port = htons(opt.far);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (void *)&address, sizeof address)) die("connect: %s", strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (c->is_websocket) shake_hands(c->fd);
    int size = put_connect(line, sizeof line);
    if (c->role == SUBSCRIBER)
        size += snprintf(line + size, sizeof line - size, "SUB %s %s1\r\n", opt.subject, opt.queue ? "q " : "");
    else if (c->role == CONSUMER) /* pushed messages start to come with the subscription, when the clock runs */
        size += opt.deliver ? 0 : snprintf(line + size, sizeof line - size, "SUB _INBOX.pull.%d 1\r\n", number);
    else if (opt.window)
        size += snprintf(line + size, sizeof line - size, "SUB _INBOX.load.%d.* 1\r\n", number);
    size += snprintf(line + size, sizeof line - size, "PING\r\n");
    if (c->is_websocket) {
        char frame[sizeof line + FRAME_HEAD_MAX];
        memcpy(frame + FRAME_HEAD_MAX, line, size);
        send_all(c->fd, frame, put_frame(frame, size) - frame);
    } else {
        send_all(c->fd, line, size);
    }
    while (got < 6 || memcmp(answer + got - 6, "PONG\r\n", 6)) {
        ssize_t n = recv(c->fd, answer + got, sizeof answer - got, 0);
        if (n <= 0) die("the server hung up: %.*s", (int)got, answer);
        got += n;
    }
}

static int may_publish(const Conn *c) {
    return c->sent < c->quota && (!opt.window || c->sent - c->acked < opt.window);
}

/* What was put, in a frame where there is one to be: `start` is where the frame begins. */
static char *framed(Conn *c, char *start, char *end) {
    return c->is_websocket ? put_frame(start, end - start - FRAME_HEAD_MAX) : end;
}

static void fill(Conn *c, int number) {
    size_t most = frame_size_max();
    if (c->out_start == c->out_end) c->out_start = c->out_end = 0;
    char *p = c->out + c->out_end, *stop = c->out + out_size - most;
    size_t head = c->is_websocket ? FRAME_HEAD_MAX : 0;
    if (c->owes_pong && p < stop) {
        p = framed(c, p, put_text(p + head, "PONG\r\n"));
        c->owes_pong = 0;
    }
    while (p < stop && may_publish(c))
        p = framed(c, p, put_message(p + head, number, c->first + c->sent++));
    if (c->sent == c->quota && !c->pinged && p < stop) { /* PONG: the server has seen all of it */
        p = framed(c, p, put_text(p + head, "PING\r\n"));
        c->pinged = 1;
    }
    c->out_end = p - c->out;
}

/* Ask for messages: subscribe to those that are pushed, or pull a batch when the last one is complete. */
static void ask(Conn *c, int number) {
    if (c->out_start == c->out_end) c->out_start = c->out_end = 0;
    if (out_size - c->out_end < 2 * LINE_SIZE_MAX) return;
    char *p = c->out + c->out_end;
    if (c->owes_pong) {
        p = put_text(p, "PONG\r\n");
        c->owes_pong = 0;
    }
    while (c->asked < c->quota && c->asked - c->got <= (opt.pulls - 1) * opt.batch && out_size - (p - c->out) > LINE_SIZE_MAX) {
        if (opt.deliver) {
            c->asked = c->quota;
            p += snprintf(p, LINE_SIZE_MAX, "SUB %s 1\r\n", opt.deliver);
        } else {
            char body[64];
            long batch = opt.batch < c->quota - c->asked ? opt.batch : c->quota - c->asked;
            int size = snprintf(body, sizeof body, "{\"batch\":%ld,\"expires\":100000000000}", batch);
            p += snprintf(p, LINE_SIZE_MAX, "PUB $JS.API.CONSUMER.MSG.NEXT.LOAD.C _INBOX.pull.%d %d\r\n%s\r\n", number, size, body);
            c->asked += batch;
        }
    }
    c->out_end = p - c->out;
}

static void flush_out(Conn *c) {
    while (c->out_start < c->out_end) {
        ssize_t n = send(c->fd, c->out + c->out_start, c->out_end - c->out_start, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) die("send: %s", strerror(errno));
        c->out_start += n;
    }
}

/* Remember which sequence a subject has now: MSG _INBOX.load.<connection>.<i> 1 <size>, {"stream":"LOAD","seq":<n>} */
static void note_seq(const char *line, const char *payload, long size) {
    const char *dot = line + strlen("MSG _INBOX.load."), *at = memmem(payload, size, "\"seq\":", 6);
    if (!at) die("an ack without a sequence: %.*s", (int)size, payload);
    last_seqs[number_of(atol(strchr(dot, '.') + 1))] = strtoull(at + 6, NULL, 10);
}

static int is_refusal(int has_headers, const char *payload, long size) {
    if (has_headers) return size < 9 || memcmp(payload, "NATS/1.0\r", 9);
    return size < 9 || memmem(payload, size < 200 ? size : 200, "\"error\"", 7);
}

/* Count acks in whole frames from `p`; returns where the first that is not whole starts. */
static char *count_acks(Conn *c, char *p, char *end) {
    for (;;) {
        char *line_end = memchr(p, '\n', end - p);
        if (!line_end) return p;
        if (*p == 'M' || *p == 'H') {
            char *size_start = line_end - 2;
            while (size_start[-1] != ' ') size_start--;
            long size = strtol(size_start, NULL, 10);
            if (end - line_end < size + 3) return p;
            char *payload = line_end + 1;
            if (is_refusal(*p == 'H', payload, size)) die("not acked: %.*s", (int)size, payload);
            if (opt.expect) note_seq(p, payload, size);
            c->acked++;
            p = payload + size + 2;
        } else if (!memcmp(p, "PONG", 4)) {
            c->is_done = !opt.window;
            p = line_end + 1;
        } else if (!memcmp(p, "PING", 4)) {
            c->owes_pong = 1; /* between two messages, not in the middle of one that is half sent */
            p = line_end + 1;
        } else if (!memcmp(p, "INFO", 4)) {
            p = line_end + 1;
        } else {
            die("the server says: %.*s", (int)(line_end - p), p);
        }
    }
}

/* The words of a line, and how many there are. */
static int split(char *p, char *end, char **words, size_t *sizes, int most) {
    int count = 0;
    while (p < end && count < most) {
        char *word_end = memchr(p, ' ', end - p);
        if (!word_end) word_end = end;
        words[count] = p;
        sizes[count++] = word_end - p;
        p = word_end + 1;
    }
    return count;
}

static void answer(Conn *c, const char *reply, size_t size, const char *back, const char *body) {
    char *p = put_text(c->out + c->out_end, "PUB ");
    memcpy(p, reply, size);
    p += size;
    c->out_end = p + sprintf(p, " %s %zu\r\n%s\r\n", back, strlen(body), body) - c->out;
}

/* One message of a consumer: a stored one, a word about flow control, or the answer to the last ack. */
static void take_message(Conn *c, int number, char *line, char *line_end, char *payload) {
    char *words[7], back[32] = "";
    size_t sizes[7];
    int has_headers = *line == 'H', count = split(line, line_end, words, sizes, 7);
    int has_reply = count == 5 + has_headers;
    if (count < 4) die("not a message: %.*s", (int)(line_end - line), line);
    if (has_reply && sizes[3] > LINE_SIZE_MAX / 2) die("a reply subject is too long");
    if (has_headers) {
        if (memcmp(payload, "NATS/1.0 100", 12)) die("a status: %.40s", payload);
        if (has_reply) answer(c, words[3], sizes[3], "", "");
    } else if (!has_reply) {
        c->is_done = 1;
    } else {
        int is_last = ++c->got == c->quota;
        if (is_last) snprintf(back, sizeof back, "_INBOX.pull.%d", number);
        if (opt.acks) answer(c, words[3], sizes[3], back, "+ACK");
        c->is_done = is_last && !opt.acks;
    }
}

/* Take whole frames for as long as there is room for acks. */
static void take_messages(Conn *c, int number) {
    char *p = c->in + c->in_start, *end = c->in + c->in_end;
    while (out_size - c->out_end > LINE_SIZE_MAX) {
        char *line_end = memchr(p, '\n', end - p);
        if (!line_end) break;
        if (*p == 'M' || *p == 'H') {
            char *size_start = line_end - 2;
            while (size_start[-1] != ' ') size_start--;
            long size = strtol(size_start, NULL, 10);
            if (end - line_end < size + 3) break;
            take_message(c, number, p, line_end - 1, line_end + 1);
            p = line_end + 1 + size + 2;
        } else {
            if (!memcmp(p, "PING", 4)) c->owes_pong = 1;
            else if (memcmp(p, "PONG", 4) && memcmp(p, "INFO", 4)) die("the server says: %.*s", (int)(line_end - p), p);
            p = line_end + 1;
        }
    }
    c->in_start = p - c->in;
}

/* Let a consumer do what it can do without waiting. */
static void consume(Conn *c, int number) {
    size_t before;
    do {
        before = c->in_start;
        ask(c, number);
        take_messages(c, number);
        ask(c, number);
        flush_out(c);
    } while (c->in_start != before && c->out_start == c->out_end);
    if (c->out_start) { /* make room for what comes */
        memmove(c->out, c->out + c->out_start, c->out_end - c->out_start);
        c->out_end -= c->out_start, c->out_start = 0;
    }
    memmove(c->in, c->in + c->in_start, c->in_end - c->in_start);
    c->in_end -= c->in_start, c->in_start = 0;
}

static void receive(Conn *c) {
    if (c->in_end == IN_SIZE) return;
    ssize_t n = recv(c->fd, c->in + c->in_end, IN_SIZE - c->in_end, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) die("the server hung up");
    if (c->is_websocket) n = unframe(c, c->in + c->in_end, n);
    if (c->role == SUBSCRIBER) { /* every frame has the same size, so bytes tell the count, but for the odd PING */
        c->received += n;
        c->is_done = c->received >= c->expected;
        return;
    }
    c->in_end += n;
    if (c->role == CONSUMER) return;
    char *rest = count_acks(c, c->in, c->in + c->in_end);
    c->in_end -= rest - c->in;
    memmove(c->in, rest, c->in_end);
    if (opt.window) c->is_done = c->acked >= c->quota;
}

static void report(int64_t wall_ns, const int64_t *times, long count) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    int64_t cpu_ns = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000LL
                   + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000LL;
    printf("{\"count\": %ld, \"wall_ns\": %lld, \"cpu_ns\": %lld", count, (long long)wall_ns, (long long)cpu_ns);
    if (times)
        printf(", \"p50_ns\": %lld, \"p99_ns\": %lld", (long long)times[count / 2], (long long)times[count * 99 / 100]);
    printf("}\n");
}

/* Let a connection do what it can without waiting; which events it waits for then. */
static short step(Conn *c, int number) {
    if (c->role == CONSUMER) {
        consume(c, number);
        return POLLIN | (c->out_start < c->out_end ? POLLOUT : 0);
    }
    if (c->role == SUBSCRIBER) return POLLIN;
    fill(c, number);
    flush_out(c);
    return POLLIN | (c->out_start < c->out_end || may_publish(c) || (c->sent == c->quota && !c->pinged) ? POLLOUT : 0);
}

static void publish(void) {
    int total = opt.connections + opt.subscribers + opt.consumers;
    Conn *conns = calloc(total, sizeof *conns);
    struct pollfd polls[CONNECTIONS_MAX];
    size_t queue_received = 0, queue_expected = 0;
    if (!conns || total > CONNECTIONS_MAX) die("too many connections");
    for (int k = 0; k < total; k++) {
        Conn *c = conns + k;
        int number = k < opt.connections ? k : k - (total - opt.consumers);
        c->role = k < opt.connections ? PUBLISHER : k < total - opt.consumers ? SUBSCRIBER : CONSUMER;
        long sharers = c->role == CONSUMER ? opt.consumers : opt.connections;
        if (c->role != SUBSCRIBER) {
            c->first = opt.count * number / sharers;
            c->quota = opt.count * (number + 1) / sharers - c->first;
        }
        char line[512];
        c->out = malloc(out_size);
        c->expected = (size_t)opt.count * (snprintf(line, sizeof line, "MSG %s 1 %ld\r\n", opt.subject, opt.size) + opt.size + 2);
        if (opt.queue) queue_expected = c->expected, c->expected = 0; /* whoever gets them: their sum counts */
        greet(c, k);
        polls[k] = (struct pollfd){.fd = c->fd, .revents = POLLOUT};
    }
    if (opt.far) usleep(300000); /* until the other server knows what is wanted over the link */
    int64_t start = now_ns(CLOCK_MONOTONIC);
    for (int left = total;;) {
        for (int k = 0; k < total; k++) {
            Conn *c = conns + k;
            if (!polls[k].revents) continue;
            size_t before = c->received;
            int was_done = c->is_done;
            if (polls[k].revents & (POLLIN | POLLHUP | POLLERR)) receive(c);
            polls[k].events = step(c, k);
            if (c->role == SUBSCRIBER && opt.queue) queue_received += c->received - before, c->is_done = 1;
            left -= c->is_done - was_done;
        }
        if (!left && queue_received >= queue_expected * (opt.subscribers > 0)) break;
        if (poll(polls, total, IDLE_MS_MAX) <= 0) die("nothing happened for %d s", IDLE_MS_MAX / 1000);
    }
    report(now_ns(CLOCK_MONOTONIC) - start, NULL, opt.count);
}

static void connect_often(void) {
    Conn *c = calloc(1, sizeof *c);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    c->role = SUBSCRIBER;
    for (long i = 0; i < opt.count; i++) {
        greet(c, 0);
        close(c->fd);
    }
    report(now_ns(CLOCK_MONOTONIC) - start, NULL, opt.count);
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void latency(void) {
    Conn *c = calloc(1, sizeof *c);
    int64_t *times = malloc(opt.count * sizeof *times), begin = now_ns(CLOCK_MONOTONIC);
    opt.window = 1;
    c->out = malloc(out_size);
    greet(c, 0);
    for (long i = 0; i < opt.count; i++) {
        int64_t start = now_ns(CLOCK_MONOTONIC);
        send_all(c->fd, c->out, put_message(c->out, 0, i) - c->out);
        while (c->acked <= i) {
            ssize_t n = recv(c->fd, c->in + c->in_end, IN_SIZE - c->in_end, 0);
            if (n <= 0) die("the server hung up");
            c->in_end += n;
            char *rest = count_acks(c, c->in, c->in + c->in_end);
            c->in_end -= rest - c->in;
            memmove(c->in, rest, c->in_end);
        }
        times[i] = now_ns(CLOCK_MONOTONIC) - start;
    }
    int64_t wall_ns = now_ns(CLOCK_MONOTONIC) - begin;
    qsort(times, opt.count, sizeof *times, by_size);
    report(wall_ns, times, opt.count);
}

static void set(const char *argument) {
    const char *equals = strchr(argument, '=');
    if (!equals) die("expected key=value, found %s", argument);
    struct { const char *name; long *value; } numbers[] = {
        {"count", &opt.count}, {"connections", &opt.connections}, {"window", &opt.window}, {"size", &opt.size},
        {"subjects", &opt.subjects}, {"ids", &opt.ids}, {"expect", &opt.expect}, {"subscribers", &opt.subscribers},
        {"queue", &opt.queue}, {"consumers", &opt.consumers}, {"batch", &opt.batch}, {"pulls", &opt.pulls},
        {"acks", &opt.acks}, {"base", &opt.base}, {"websocket", &opt.websocket}, {"listen", &opt.listen},
        {"far", &opt.far},
    };
    struct { const char *name, **value; } texts[] = {
        {"subject", &opt.subject}, {"deliver", &opt.deliver}, {"body", &opt.body}, {"user", &opt.user},
    };
    size_t size = equals - argument;
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        if (strlen(texts[k].name) == size && !memcmp(texts[k].name, argument, size)) {
            *texts[k].value = equals + 1;
            return;
        }
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (strlen(numbers[k].name) == size && !memcmp(numbers[k].name, argument, size)) {
            *numbers[k].value = atol(equals + 1);
            return;
        }
    die("no key %.*s", (int)size, argument);
}

int main(int argc, char **argv) {
    if (argc < 3) die("usage: load publish|latency|connect PORT key=value...");
    opt.port = atoi(argv[2]);
    for (int k = 3; k < argc; k++) set(argv[k]);
    if (opt.size > POOL_SIZE / 2 || (opt.body && strlen(opt.body) > LINE_SIZE_MAX / 2)) die("payload too long");
    if (opt.expect && opt.subjects < opt.window * opt.connections) die("a subject would have two messages on the way");
    out_size = 4 * frame_size_max() > OUT_SIZE_MIN ? 4 * frame_size_max() : OUT_SIZE_MIN;
    run_id = now_ns(CLOCK_REALTIME);
    pool = malloc(POOL_SIZE);
    last_seqs = calloc(opt.subjects, sizeof *last_seqs);
    for (size_t k = 0; k < POOL_SIZE; k += 8) *(uint64_t *)(pool + k) = mix(k + 7);
    if (!strcmp(argv[1], "latency")) latency();
    else if (!strcmp(argv[1], "connect")) connect_often();
    else publish();
    return 0;
}
