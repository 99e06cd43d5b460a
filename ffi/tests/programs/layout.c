/* The layouts that built programs rely on, for 64-bit machines. A change here is a new minor version. */
#include <redbolt.h>
#include <stdio.h>

#define HELD(type, size) _Static_assert(sizeof(type) == (size), #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)

HELD(redbolt_code, 4);
HELD(redbolt_lease, 16);
HELD(redbolt_op, 16);
HELD(redbolt_key, 16);
AT(redbolt_key, len, 8);
HELD(redbolt_options, 48);
AT(redbolt_options, ttl_ns, 0);
AT(redbolt_options, timeout_ns, 8);
AT(redbolt_options, min_validity_ns, 16);
AT(redbolt_options, linger_ns, 24);
AT(redbolt_options, slots, 32);
AT(redbolt_options, readers, 36);
AT(redbolt_options, flags, 40);
HELD(redbolt_error, 1068);
AT(redbolt_error, code, 0);
AT(redbolt_error, nodes, 4);
AT(redbolt_error, quorum, 8);
AT(redbolt_error, votes, 12);
AT(redbolt_error, message, 44);
HELD(redbolt_lease_info, 40);
AT(redbolt_lease_info, deadline_ns, 0);
AT(redbolt_lease_info, remaining_ns, 8);
AT(redbolt_lease_info, fence, 16);
AT(redbolt_lease_info, votes, 24);
AT(redbolt_lease_info, slot, 28);
AT(redbolt_lease_info, is_lost, 32);
HELD(redbolt_completion, 32);
AT(redbolt_completion, event, 0);
AT(redbolt_completion, code, 4);
AT(redbolt_completion, user, 8);
AT(redbolt_completion, lease, 16);

int main(void) {
  printf("redbolt %s\n", redbolt_version());
  return 0;
}
