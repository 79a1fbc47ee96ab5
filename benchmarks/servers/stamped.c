// A streaming chat server that knows when it sent each token: what clients are measured against.
//
//   gcc -O2 -Wall -o stamped stamped.c
//   ./stamped TTFT_US ITL_US TOKENS JITTER_PERCENT STEP_US
//
// Listens on a free port of 127.0.0.1 and prints it. Token k of a request is due at
// (last request byte) + TTFT + k x ITL, each interval varied by up to JITTER_PERCENT either way. With STEP_US > 0
// the due times are rounded up to one grid for all streams, as the steps of an inference engine are (lock-step).
// Each event carries "sent_ns", CLOCK_MONOTONIC just before the system call that sends it. One event is one HTTP
// chunk and one send; the first token travels with the role chunk, the last with finish, usage and [DONE].
// A request may override the first three numbers:  X-Timing: TTFT_US,ITL_US,TOKENS
// GET /stats answers how late tokens left and forgets it; GET /v1/models names one model.
//
// One thread, epoll, a heap of due times.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX = 8192, FD_MAX = 16384, LATE_MAX = 1 << 21 };
enum phase { HEAD, BODY, STREAM };

struct stream {
    int fd, slot;  // slot: place in the heap, -1 when not in it
    enum phase phase;
    int head_size;
    int64_t body_size, body_left;
    int64_t ttft_ns, itl_ns, due_ns;
    int tokens, sent;
    uint64_t random;
    char head[HEAD_MAX];
};

static struct stream *streams[FD_MAX], *heap[FD_MAX];
static int heap_size, epoll_fd;
static int64_t default_ttft_ns, default_itl_ns, step_ns;
static int default_tokens;
static double jitter;
static int32_t late_ns[LATE_MAX];
static int late_count;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// heap of due times

static void place(int slot, struct stream *s) { heap[slot] = s; s->slot = slot; }

static void sift(int slot) {
    struct stream *s = heap[slot];
    for (; slot > 0 && s->due_ns < heap[(slot - 1) / 2]->due_ns; slot = (slot - 1) / 2) place(slot, heap[(slot - 1) / 2]);
    for (int child; (child = 2 * slot + 1) < heap_size; slot = child) {
        if (child + 1 < heap_size && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
        if (heap[child]->due_ns >= s->due_ns) break;
        place(slot, heap[child]);
    }
    place(slot, s);
}

static void heap_add(struct stream *s) { place(heap_size++, s); sift(s->slot); }

static void heap_remove(struct stream *s) {
    if (s->slot < 0) return;
    int slot = s->slot;
    struct stream *last = heap[--heap_size];
    if (last != s) { place(slot, last); sift(slot); }
    s->slot = -1;
}

// streams

static void drop(struct stream *s) {
    heap_remove(s);
    streams[s->fd] = NULL;
    close(s->fd);
    free(s);
}

static int put(struct stream *s, const char *data, int size) {
    while (size > 0) {
        ssize_t sent = send(s->fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) { usleep(50); continue; }
        if (sent < 0) return -1;
        data += sent;
        size -= sent;
    }
    return 0;
}

static int64_t vary(struct stream *s, int64_t interval) {
    s->random ^= s->random << 13, s->random ^= s->random >> 7, s->random ^= s->random << 17;
    return interval * (1 + jitter * ((s->random >> 11) * (2.0 / 9007199254740992.0) - 1));
}

static int64_t grid(int64_t t) { return step_ns ? (t + step_ns - 1) / step_ns * step_ns : t; }

#define EVENT "data: {\"id\":\"chatcmpl-5f0c5a9be77d41c2\",\"object\":\"chat.completion.chunk\",\"created\":1764400000,\"model\":\"stamped\","

static int chunk(char *out, const char *payload, int size) {
    int n = sprintf(out, "%x\r\n", size);
    memcpy(out + n, payload, size);
    memcpy(out + n + size, "\r\n", 2);
    return n + size + 2;
}

static void send_token(struct stream *s) {
    static const char *words[] = {" the", " return", " self", " index", " value", " data", " None", " name"};
    char out[4096], event[1024];
    int size = 0, n;
    long long now = now_ns();
    if (s->sent == 0) {
        n = sprintf(event, EVENT "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],\"sent_ns\":%lld}\n\n", now);
        size += chunk(out + size, event, n);
    }
    int last = ++s->sent == s->tokens;
    n = sprintf(event, EVENT "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"logprobs\":null,\"finish_reason\":%s}],\"sent_ns\":%lld}\n\n", words[s->sent & 7], last ? "\"length\"" : "null", now);
    size += chunk(out + size, event, n);
    if (last) {
        n = sprintf(event, EVENT "\"choices\":[],\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%d,\"total_tokens\":%lld,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n", (long long)s->body_size / 4, s->tokens, (long long)s->body_size / 4 + s->tokens);
        size += chunk(out + size, event, n);
        size += chunk(out + size, "data: [DONE]\n\n", 14);
        memcpy(out + size, "0\r\n\r\n", 5);
        size += 5;
    }
    if (late_count < LATE_MAX) late_ns[late_count++] = now - s->due_ns;
    if (put(s, out, size) < 0) { drop(s); return; }
    if (last) { heap_remove(s); s->phase = HEAD; s->head_size = 0; return; }
    s->due_ns = step_ns ? grid(s->due_ns + s->itl_ns) : s->due_ns + vary(s, s->itl_ns);
    sift(s->slot);
}

static int by_size(const void *a, const void *b) { return (*(int32_t *)a > *(int32_t *)b) - (*(int32_t *)a < *(int32_t *)b); }

static void answer(struct stream *s, const char *body) {
    char out[1024];
    put(s, out, sprintf(out, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", strlen(body), body));
    s->phase = HEAD;
    s->head_size = 0;
}

static void request_complete(struct stream *s) {
    int64_t now = now_ns();
    if (!strncmp(s->head, "GET /stats", 10)) {
        char body[256];
        qsort(late_ns, late_count, sizeof *late_ns, by_size);
        #define RANK(q) (late_count ? late_ns[(int)((late_count - 1) * (q))] / 1e3 : 0.0)
        sprintf(body, "{\"tokens\":%d,\"late_us\":{\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f}}", late_count, RANK(.5), RANK(.9), RANK(.99), RANK(1));
        late_count = 0;
        answer(s, body);
    } else if (!strncmp(s->head, "GET ", 4)) {
        answer(s, "{\"object\":\"list\",\"data\":[{\"id\":\"stamped\",\"object\":\"model\",\"max_model_len\":262144}]}");
    } else {
        static const char head[] = "HTTP/1.1 200 OK\r\nserver: stamped\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
        if (put(s, head, sizeof head - 1) < 0) { drop(s); return; }
        s->phase = STREAM;
        s->sent = 0;
        s->due_ns = grid(now + (step_ns ? s->ttft_ns : vary(s, s->ttft_ns)));
        heap_add(s);
    }
}

static void head_complete(struct stream *s, int end) {
    char *length = strcasestr(s->head, "\r\ncontent-length:"), *timing = strcasestr(s->head, "\r\nx-timing:");
    s->body_size = length ? atoll(length + 17) : 0;
    s->body_left = s->body_size - (s->head_size - end);
    long long ttft = default_ttft_ns / 1000, itl = default_itl_ns / 1000;
    s->tokens = default_tokens;
    if (timing) sscanf(timing + 11, " %lld,%lld,%d", &ttft, &itl, &s->tokens);
    s->ttft_ns = ttft * 1000;
    s->itl_ns = itl * 1000;
    s->phase = BODY;
    if (s->body_left <= 0) request_complete(s);
}

static void readable(struct stream *s) {
    static char discarded[1 << 20];
    for (;;) {
        ssize_t got = s->phase == HEAD ? recv(s->fd, s->head + s->head_size, HEAD_MAX - 1 - s->head_size, 0)
                                       : recv(s->fd, discarded, sizeof discarded, 0);
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) { drop(s); return; }
        int fd = s->fd;
        if (s->phase == HEAD) {
            s->head_size += got;
            s->head[s->head_size] = 0;
            char *end = strstr(s->head, "\r\n\r\n");
            if (end) { end[2] = 0; head_complete(s, end + 4 - s->head); }
            else if (s->head_size >= HEAD_MAX - 1) { drop(s); return; }
        } else if (s->phase == BODY && (s->body_left -= got) <= 0) {
            request_complete(s);
        }
        if (streams[fd] != s) return;
    }
}

static void accept_all(int listener) {
    static uint64_t seed = 0x2545F4914F6CDD1DULL;
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        if (fd >= FD_MAX) { close(fd); continue; }
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct stream *s = streams[fd] = calloc(1, sizeof *s);
        s->fd = fd;
        s->slot = -1;
        s->random = seed += 0x9E3779B97F4A7C15ULL;
        struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
        readable(s);
    }
}

int main(int argc, char **argv) {
    if (argc != 6) { fprintf(stderr, "usage: stamped TTFT_US ITL_US TOKENS JITTER_PERCENT STEP_US\n"); return 2; }
    default_ttft_ns = atoll(argv[1]) * 1000;
    default_itl_ns = atoll(argv[2]) * 1000;
    default_tokens = atoi(argv[3]);
    jitter = atof(argv[4]) / 100;
    step_ns = atoll(argv[5]) * 1000;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);

    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (void *)&address, size) || listen(listener, 4096) || getsockname(listener, (void *)&address, &size)) {
        perror("stamped");
        return 1;
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);

    epoll_fd = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, ready[256];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        struct timespec wait = {1, 0};
        if (heap_size) {
            int64_t left = heap[0]->due_ns - now_ns();
            if (left < 0) left = 0;
            wait = (struct timespec){left / 1000000000, left % 1000000000};
        }
        int n = epoll_pwait2(epoll_fd, ready, 256, &wait, NULL);
        for (int i = 0; i < n; i++) {
            if (ready[i].data.fd == listener) accept_all(listener);
            else if (streams[ready[i].data.fd]) readable(streams[ready[i].data.fd]);
        }
        for (int k = 0; k < 4096 && heap_size && heap[0]->due_ns <= now_ns(); k++) send_token(heap[0]);
    }
}
