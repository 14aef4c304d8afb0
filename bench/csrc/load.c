/* Many connections, one request outstanding on each: sends prebuilt frames and counts the answers.
 *
 *     load PORT REQUESTS COPIES PACED SCRIPT ANSWERS
 *
 * A connection asks or consumes. One that asks sends its frame again as soon as it is answered,
 * until REQUESTS requests have been sent on all connections together. One that consumes sends a
 * Fetch, moves the offset in its frame by the records of the answer and sends it again; each record
 * must arrive COPIES times. With PACED there is one connection that asks, and it sends the next
 * request when the last one is answered and all its copies have arrived.
 *
 * SCRIPT holds for each connection five 32-bit numbers in the byte order of the machine, then the
 * frame:
 *     kind             0 asks, 1 asks and every answer equals the first, 2 consumes
 *     offset_position  where the frame of a consumer has its fetch offset
 *     empty_bytes      length of a Fetch answer without records
 *     batch_bytes      length of a batch; a batch is one record
 *     frame_bytes
 *
 * Connections that ask send one request before the clock starts. The program then writes "ready",
 * waits for a line on its input, runs, and writes
 *     answers deliveries seconds processor_seconds p50_us p99_us
 * where a delivery is a Fetch answer with records. The times are those from a request to its
 * answer; with PACED, from a request to each delivery. ANSWERS gets the last answer of each
 * connection, length in front as on the wire. The connections stay open until the input ends, so
 * that closing them costs the broker nothing while it is measured.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { ASKS, ASKS_THE_SAME, CONSUMES };
enum { ANSWER_BYTES_MAX = 1 << 16, EVENTS_MAX = 512, RUN_SECONDS_MAX = 300 };
enum { LENGTH_BYTES_MAX = 4 }; /* by how much the length of the records may itself grow */

struct connection {
    uint32_t kind, offset_position, empty_bytes, batch_bytes, frame_bytes;
    int socket;
    uint8_t *frame;
    uint8_t *first;       /* the first answer, where every answer equals it */
    uint32_t first_bytes; /* its length, which every answer to a question has */
    uint8_t *answer;      /* the answer that is arriving, or the last one that arrived */
    uint32_t have;        /* how much of the arriving one is there */
    uint32_t last_bytes;
    int64_t sent_ns;
};

static struct connection *connections;
static size_t connection_count;
static struct connection *pacer; /* the one that asks, with PACED */
static uint64_t requests, copies, issued, answered, records, deliveries;
static uint32_t *taken_ns; /* of each answer or, with PACED, of each delivery */
static uint64_t taken_count, taken_max;

static void fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

static void *memory(size_t size)
{
    void *got = calloc(1, size ? size : 1);
    if (!got) fail("no memory for %zu bytes", size);
    return got;
}

static int64_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static double processor_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void read_script(const char *path)
{
    uint32_t head[5];
    FILE *script = fopen(path, "rb");
    if (!script) fail("%s: %s", path, strerror(errno));
    while (fread(head, sizeof head, 1, script) == 1) {
        connections = realloc(connections, (connection_count + 1) * sizeof *connections);
        if (!connections) fail("no memory for connections");
        struct connection *added = &connections[connection_count++];
        memset(added, 0, sizeof *added);
        added->kind = head[0];
        added->offset_position = head[1];
        added->empty_bytes = head[2];
        added->batch_bytes = head[3];
        added->frame_bytes = head[4];
        added->frame = memory(head[4]);
        added->answer = memory(ANSWER_BYTES_MAX);
        if (fread(added->frame, 1, head[4], script) != head[4]) fail("%s is cut short", path);
    }
    if (!feof(script) || !connection_count) fail("%s holds no connections", path);
    fclose(script);
}

static void open_socket(struct connection *c, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (c->socket < 0 || connect(c->socket, (struct sockaddr *)&at, sizeof at))
        fail("connect: %s", strerror(errno));
    setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void send_frame(struct connection *c, int64_t at_ns)
{
    ssize_t sent = send(c->socket, c->frame, c->frame_bytes, MSG_NOSIGNAL);
    if (sent != (ssize_t)c->frame_bytes)
        fail("send of %u bytes: %s", c->frame_bytes, strerror(errno));
    c->sent_ns = at_ns;
}

/* Takes what is there; true when that completes an answer. */
static int receive(struct connection *c)
{
    uint32_t length;
    ssize_t got = recv(c->socket, c->answer + c->have, ANSWER_BYTES_MAX - c->have, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got < 0) fail("recv: %s", strerror(errno));
    if (got == 0) fail("the broker closed a connection");
    c->have += got;
    if (c->have < 4) return 0;
    memcpy(&length, c->answer, 4);
    length = ntohl(length) + 4;
    if (length > ANSWER_BYTES_MAX || c->have > length)
        fail("an answer of %u bytes, %u came", length, c->have);
    if (c->have < length) return 0;
    c->last_bytes = length;
    c->have = 0;
    return 1;
}

static void ask_first(void)
{
    for (size_t i = 0; i < connection_count; i++)
        if (connections[i].kind != CONSUMES) send_frame(&connections[i], 0);
    for (size_t i = 0; i < connection_count; i++) {
        struct connection *c = &connections[i];
        if (c->kind == CONSUMES) continue;
        while (!receive(c)) {}
        c->first_bytes = c->last_bytes;
        c->first = memory(c->last_bytes);
        memcpy(c->first, c->answer, c->last_bytes);
    }
}

static void note_time(int64_t ns)
{
    if (taken_count < taken_max)
        taken_ns[taken_count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static void issue(struct connection *c, int64_t at_ns)
{
    issued++;
    send_frame(c, at_ns);
}

static void on_answer(struct connection *c, int64_t at_ns)
{
    answered++;
    if (c->last_bytes != c->first_bytes)
        fail("an answer of %u bytes, the first had %u", c->last_bytes, c->first_bytes);
    if (c->kind == ASKS_THE_SAME && memcmp(c->answer, c->first, c->first_bytes))
        fail("an answer differs from the first");
    if (pacer) return;
    note_time(at_ns - c->sent_ns);
    if (issued < requests) issue(c, at_ns);
}

static void on_fetched(struct connection *c, int64_t at_ns)
{
    uint32_t bytes = c->last_bytes - c->empty_bytes;
    if (c->last_bytes < c->empty_bytes || bytes % c->batch_bytes > LENGTH_BYTES_MAX)
        fail("a Fetch answer of %u bytes holds no whole number of records", c->last_bytes);
    uint64_t offset, came = bytes / c->batch_bytes;
    if (came) {
        memcpy(&offset, c->frame + c->offset_position, 8);
        offset = htobe64(be64toh(offset) + came);
        memcpy(c->frame + c->offset_position, &offset, 8);
        records += came;
        deliveries++;
        if (pacer) note_time(at_ns - pacer->sent_ns);
    }
    send_frame(c, at_ns);
}

static void run(int poll)
{
    struct epoll_event events[EVENTS_MAX];
    for (size_t i = 0; i < connection_count && issued < requests; i++)
        if (connections[i].kind != CONSUMES) issue(&connections[i], now_ns());
    while (answered < requests || records < requests * copies) {
        int ready = epoll_wait(poll, events, EVENTS_MAX, -1);
        if (ready < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (!receive(c)) continue;
            if (c->kind == CONSUMES) on_fetched(c, now_ns());
            else on_answer(c, now_ns());
        }
        if (pacer && answered == issued && records == issued * copies && issued < requests)
            issue(pacer, now_ns());
    }
}

static int by_size(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static double percentile_us(double share)
{
    uint64_t place = taken_count * share;
    return taken_count ? taken_ns[place < taken_count ? place : taken_count - 1] / 1e3 : 0;
}

static void write_answers(const char *path)
{
    FILE *answers = fopen(path, "wb");
    if (!answers) fail("%s: %s", path, strerror(errno));
    for (size_t i = 0; i < connection_count; i++)
        fwrite(connections[i].answer, 1, connections[i].last_bytes, answers);
    if (fclose(answers)) fail("%s: %s", path, strerror(errno));
}

/* Opens the connections and sends what comes before the clock; gives the descriptor to wait on. */
static int prepare(int port)
{
    int poll = epoll_create1(0);
    for (size_t i = 0; i < connection_count; i++) open_socket(&connections[i], port);
    ask_first();
    for (size_t i = 0; i < connection_count; i++) {
        struct connection *c = &connections[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        if (c->kind == CONSUMES) send_frame(c, 0);
        fcntl(c->socket, F_SETFL, O_NONBLOCK);
        if (epoll_ctl(poll, EPOLL_CTL_ADD, c->socket, &event))
            fail("epoll_ctl: %s", strerror(errno));
    }
    return poll;
}

int main(int count, char **given)
{
    if (count != 7) fail("load PORT REQUESTS COPIES PACED SCRIPT ANSWERS");
    requests = strtoull(given[2], NULL, 10);
    copies = strtoull(given[3], NULL, 10);
    read_script(given[5]);
    for (size_t i = 0; atoi(given[4]) && i < connection_count; i++) {
        if (connections[i].kind == CONSUMES) continue;
        if (pacer) fail("more than one connection asks in a paced run");
        pacer = &connections[i];
    }
    taken_max = pacer ? requests * copies : requests;
    taken_ns = memory(taken_max * sizeof *taken_ns);
    alarm(RUN_SECONDS_MAX);
    int poll = prepare(atoi(given[1]));
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF) return 1;
    int64_t started_ns = now_ns();
    double started_cpu = processor_seconds();
    run(poll);
    double seconds = (now_ns() - started_ns) / 1e9, cpu = processor_seconds() - started_cpu;
    qsort(taken_ns, taken_count, sizeof *taken_ns, by_size);
    write_answers(given[6]);
    printf("%llu %llu %.6f %.6f %.1f %.1f\n", (unsigned long long)answered,
           (unsigned long long)deliveries, seconds, cpu, percentile_us(0.5), percentile_us(0.99));
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
