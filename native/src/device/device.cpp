/// What a device need not have: asking for it is one error.
#include "device/device.h"

#include "base/error.h"

namespace aima::device {
namespace {

[[noreturn]] void refuse(const char* what, const Facts& facts) {
  throw base::Error({.what = std::string(what), .where = "device " + facts.name});
}

}  // namespace

void Device::draft(State&, std::span<const std::int32_t>) { refuse("there is no draft head", facts()); }

void Device::draft_head(Rows) { refuse("there is no draft head", facts()); }

std::size_t Device::draft_state_bytes(std::int64_t) const { return 0; }

void Device::read_routing(std::span<std::int32_t>, std::span<float>) {
  refuse("the router's choices cannot be read", facts());
}

void Device::read_delta_state(const State&, int, std::span<float>, std::span<float>) {
  refuse("the delta state cannot be read", facts());
}

}  // namespace aima::device
