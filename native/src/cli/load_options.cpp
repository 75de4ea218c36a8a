#include "cli/load_options.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>

namespace aima::cli {
namespace {

using Clock = std::chrono::steady_clock;

double giga(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

double rate(const model::LoadReport& report) {
  return report.seconds > 0 ? giga(report.read_bytes) / report.seconds : 0;
}

/// One line that is written over itself, ten times a second, once a load takes more than one.
class ProgressLine {
 public:
  void tell(std::uint64_t done, std::uint64_t total) {
    const Clock::time_point now = Clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    const double seconds = std::chrono::duration<double>(now - start_).count();
    std::fprintf(stderr, "\r\033[Kloading %.1f of %.1f GB, %.2f GB/s", giga(done), giga(total),
                 giga(done) / seconds);
    shown_ = true;
  }
  ProgressLine() = default;
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }

 private:
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_ + std::chrono::seconds(1);
  bool shown_ = false;
};

}  // namespace

model::Watch terminal_watch() {
  if (::isatty(STDERR_FILENO) == 0) return {};
  auto line = std::make_shared<ProgressLine>();
  return {.progress = [line](std::uint64_t done, std::uint64_t total) { line->tell(done, total); }};
}

engine::LoadRequest load_request(const Arguments& arguments) {
  engine::LoadRequest request;
  request.options.method = arguments.has("mmap") ? model::Method::mmap : model::Method::read;
  request.options.workers = static_cast<int>(arguments.integer("load-threads", 0, 1, 256));
  request.options.watch = terminal_watch();
  if (const auto file = arguments.value("expect-manifest")) request.manifest = *file;
  return request;
}

boost::json::object json_of(const model::LoadReport& report) {
  return {{"method", model::name_of(report.method)},
          {"workers", report.workers},
          {"tensors", report.tensors},
          {"bytes", report.bytes},
          {"read_bytes", report.read_bytes},
          {"seconds", report.seconds},
          {"gb_per_second", rate(report)},
          {"held_bytes", report.held_bytes},
          {"mapped_bytes", report.mapped_bytes}};
}

boost::json::object load_json(const engine::LoadedModel& model) {
  boost::json::object load = json_of(model.load_report());
  load["weights_digest"] = nullptr;
  if (!model.weights_digest.empty()) load["weights_digest"] = model.weights_digest;
  load["manifest"] = nullptr;
  if (model.manifest) load["manifest"] = model.manifest->string();
  return load;
}

std::string load_line(const model::LoadReport& report) {
  std::string text(160, '\0');
  const int size = std::snprintf(text.data(), text.size(), "%s %.2f GB in %.2f s with %d workers, %.2f GB/s",
                                 report.method == model::Method::read ? "read" : "digested",
                                 giga(report.read_bytes), report.seconds, report.workers, rate(report));
  text.resize(static_cast<std::size_t>(size));
  if (report.mapped_bytes == 0) return text;
  std::string mapped(64, '\0');
  const int more = std::snprintf(mapped.data(), mapped.size(), "mapped %.2f GB", giga(report.mapped_bytes));
  mapped.resize(static_cast<std::size_t>(more));
  return report.read_bytes < report.mapped_bytes ? mapped : mapped + "; " + text;
}

}  // namespace aima::cli
