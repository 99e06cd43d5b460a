/* Locks in a loop of libuv: a poll handle and a timer. usage: libuv ADDRESS.. */
#include "orders.h"
#include <uv.h>

static struct orders orders;
static uv_poll_t poll_handle;
static uv_timer_t timer;

static void on_time(uv_timer_t *handle);

static void serve(void) {
  if (!serve_orders(&orders)) {
    uv_poll_stop(&poll_handle);
    uv_close((uv_handle_t *)&poll_handle, NULL);
    uv_close((uv_handle_t *)&timer, NULL);
    return;
  }
  int64_t timeout = timeout_ms(orders.driver);
  if (timeout < 0) {
    uv_timer_stop(&timer);
  } else {
    uv_update_time(timer.loop);
    uv_timer_start(&timer, on_time, (uint64_t)timeout, 0);
  }
}

static void on_time(uv_timer_t *handle) {
  (void)handle;
  serve();
}

static void on_readable(uv_poll_t *handle, int status, int events) {
  (void)handle, (void)events;
  if (status < 0) exit(2);
  serve();
}

int main(int argc, char **argv) {
  begin_orders(&orders, argc, argv);
  uv_loop_t *loop = uv_default_loop();
  uv_timer_init(loop, &timer);
  uv_poll_init(loop, &poll_handle, redbolt_driver_fd(orders.driver));
  uv_poll_start(&poll_handle, UV_READABLE, on_readable);
  serve();
  uv_run(loop, UV_RUN_DEFAULT);
  uv_loop_close(loop);
  end_orders(&orders);
  return 0;
}
