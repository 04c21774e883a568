/* The minimum in C: sends every message of a publisher to all subscribers, with one write for each
 * message and subscriber. It implements only what the readers of the benchmark need of WebSocket:
 * it ignores the key of the handshake, expects whole frames masked with 0, and checks nothing. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_FILES = 65536, PIECE = 65536, EVENTS = 256 };

static struct {
  char *rest; /* an incomplete frame or head */
  size_t size;
  int open;
} peers[MAX_FILES];
static int subscribers[MAX_FILES], subscribed;
static char buffer[2 * PIECE], frame[PIECE];

static void put(int fd, const char *data, size_t size) {
  while (size) {
    ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EAGAIN) {
      struct pollfd room = {fd, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (n <= 0) {
      return;
    } else {
      data += n, size -= (size_t)n;
    }
  }
}

static size_t framed(const char *payload, size_t size) {
  size_t at = 2;
  frame[0] = (char)0x81, frame[1] = (char)size;
  if (size > 125) frame[1] = 126, frame[2] = (char)(size >> 8), frame[3] = (char)size, at = 4;
  memcpy(frame + at, payload, size);
  return at + size;
}

static void answer(int fd, const char *text) { put(fd, frame, framed(text, strlen(text))); }

static void leave(int fd) {
  for (int i = 0; i < subscribed; i++)
    if (subscribers[i] == fd) subscribers[i--] = subscribers[--subscribed];
  free(peers[fd].rest);
  memset(&peers[fd], 0, sizeof peers[fd]);
  close(fd);
}

static void take(int fd, const char *payload, size_t size) {
  size_t head = size < 40 ? size : 40;
  if (memmem(payload, head, "\"publish\"", 9)) {
    size_t whole = framed(payload, size);
    for (int i = 0; i < subscribed; i++) put(subscribers[i], frame, whole);
  } else if (memmem(payload, head, "\"auth\"", 6)) {
    answer(fd, "{\"type\":\"auth.ok\",\"client_id\":\"cl_1\"}");
  } else if (memmem(payload, head, "\"subscribe\"", 11)) {
    subscribers[subscribed++] = fd;
    answer(fd, "{\"type\":\"subscribed\",\"topics\":[]}");
  }
}

static void readable(int fd) {
  size_t kept = peers[fd].size;
  memcpy(buffer, peers[fd].rest, kept);
  ssize_t n = read(fd, buffer + kept, sizeof buffer - kept);
  if (n <= 0) {
    leave(fd);
    return;
  }
  size_t end = kept + (size_t)n, at = 0;
  if (!peers[fd].open) {
    char *head = memmem(buffer, end, "\r\n\r\n", 4);
    if (head) {
      const char *yes = "HTTP/1.1 101 Switching Protocols\r\n"
                        "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
      peers[fd].open = 1, at = (size_t)(head - buffer) + 4;
      put(fd, yes, strlen(yes));
    }
  }
  while (peers[fd].open && end - at >= 6) {
    size_t size = (unsigned char)buffer[at + 1] & 0x7F, body = at + 6;
    if (size == 126) {
      size = (size_t)((unsigned char)buffer[at + 2] << 8 | (unsigned char)buffer[at + 3]);
      body = at + 8;
    }
    if (body + size > end) break;
    take(fd, buffer + body, size);
    at = body + size;
  }
  peers[fd].size = end - at;
  peers[fd].rest = realloc(peers[fd].rest, end - at + 1);
  memcpy(peers[fd].rest, buffer + at, end - at);
}

int main(void) {
  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), poll_fd = epoll_create1(0);
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t size = sizeof address;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096)) return 1;
  getsockname(listener, (struct sockaddr *)&address, &size);
  printf("{\"ws\":\"ws://127.0.0.1:%d/ws\"}\n", ntohs(address.sin_port));
  fflush(stdout);
  struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS];
  epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &event);
  for (;;) {
    int ready = epoll_wait(poll_fd, events, EVENTS, -1);
    for (int i = 0; i < ready; i++) {
      if (events[i].data.fd != listener) {
        readable(events[i].data.fd);
        continue;
      }
      int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
      if (fd < 0 || fd >= MAX_FILES) continue;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      event.data.fd = fd;
      epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event);
    }
  }
}
