/* Locks in a loop on epoll, with no thread: one descriptor and one timeout. usage: epoll ADDRESS.. */
#include "orders.h"
#include <sys/epoll.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct orders orders = {0};
  begin_orders(&orders, argc, argv);
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event watched = {.events = EPOLLIN}, events[4];
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, redbolt_driver_fd(orders.driver), &watched) != 0) return 2;
  while (serve_orders(&orders)) {
    int64_t timeout = timeout_ms(orders.driver);
    /* The program's own events are served here. */
    epoll_wait(epoll, events, 4, timeout > INT32_MAX ? INT32_MAX : (int)timeout);
  }
  close(epoll);
  end_orders(&orders);
  return 0;
}
