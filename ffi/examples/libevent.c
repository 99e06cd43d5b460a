/* Locks in a loop of libevent: one event, for the descriptor and the time. usage: libevent ADDRESS.. */
#include "orders.h"
#include <event2/event.h>

static struct orders orders;

static void serve(evutil_socket_t fd, short what, void *event) {
  (void)fd, (void)what;
  if (!serve_orders(&orders)) return; /* with no event left, the loop ends */
  int64_t ms = timeout_ms(orders.driver);
  struct timeval after = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
  event_add((struct event *)event, ms < 0 ? NULL : &after);
}

int main(int argc, char **argv) {
  begin_orders(&orders, argc, argv);
  struct event_base *base = event_base_new();
  struct event *event =
      event_new(base, redbolt_driver_fd(orders.driver), EV_READ, serve, event_self_cbarg());
  serve(-1, 0, event);
  event_base_dispatch(base);
  event_free(event);
  event_base_free(base);
  end_orders(&orders);
  return 0;
}
