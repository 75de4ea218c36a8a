#include "model/tensor_store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/numbers.h"
#include "base/threads.h"

namespace aima::model {
namespace {

using Clock = std::chrono::steady_clock;

/// Every tensor in anonymous memory begins at a cache line.
std::uint64_t rounded(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

bool as_it_lies(const Wanted& wanted) { return wanted.dtype == wanted.tensor->dtype; }

bool stays_mapped(const Wanted& wanted, Method method) {
  return method == Method::mmap && as_it_lies(wanted) && !wanted.passing;
}

std::uint64_t bytes_in_memory(const Wanted& wanted) {
  const auto from = static_cast<std::uint64_t>(bytes_of(wanted.tensor->dtype));
  return wanted.tensor->bytes / from * static_cast<std::uint64_t>(bytes_of(wanted.dtype));
}

float float_at(const std::byte* at, DType dtype) {
  if (dtype == DType::f32) return base::load_unaligned<float>(at);
  const auto bits = base::load_unaligned<std::uint16_t>(at);
  return dtype == DType::bf16 ? base::float_from_bf16(bits) : base::float_from_f16(bits);
}

template <DType From, DType To>
void convert_all(std::span<const std::byte> block, std::byte* out) {
  constexpr std::size_t from = From == DType::f32 ? 4 : 2;
  constexpr std::size_t to = To == DType::f32 ? 4 : 2;
  for (std::size_t i = 0; i < block.size() / from; ++i) {
    const float value = float_at(block.data() + from * i, From);
    if constexpr (To == DType::f32) {
      std::memcpy(out + to * i, &value, to);
    } else {
      const std::uint16_t bits = base::bf16_from_float(value);
      std::memcpy(out + to * i, &bits, to);
    }
  }
}

/// Converts to f32 or bf16, rounded to nearest even. Returns the end of what was written.
std::byte* convert(std::span<const std::byte> block, DType from, DType to, std::byte* out) {
  const bool wide = to == DType::f32;
  switch (from) {
    case DType::bf16:
      wide ? convert_all<DType::bf16, DType::f32>(block, out)
           : convert_all<DType::bf16, DType::bf16>(block, out);
      break;
    case DType::f16:
      wide ? convert_all<DType::f16, DType::f32>(block, out)
           : convert_all<DType::f16, DType::bf16>(block, out);
      break;
    case DType::f32:
      wide ? convert_all<DType::f32, DType::f32>(block, out)
           : convert_all<DType::f32, DType::bf16>(block, out);
      break;
    case DType::other:
      throw std::logic_error("a dtype that weights cannot have");
  }
  return out +
         block.size() / static_cast<std::size_t>(bytes_of(from)) * static_cast<std::size_t>(bytes_of(to));
}

}  // namespace

/// One tensor to read, or (`mapped`) to digest where it lies.
struct TensorStore::Job {
  Wanted wanted;
  std::byte* into = nullptr;
  const std::byte* mapped = nullptr;
  std::string* digest = nullptr;
};

StoreSize store_size(std::span<const Wanted> wanted, Method method) {
  StoreSize size;
  for (const Wanted& each : wanted) {
    if (stays_mapped(each, method)) {
      size.mapped_bytes += each.tensor->bytes;
    } else {
      (each.passing ? size.passing_bytes : size.held_bytes) += rounded(bytes_in_memory(each));
    }
  }
  return size;
}

TensorStore::TensorStore(const Checkpoint& checkpoint, std::span<const Wanted> wanted,
                         const LoadOptions& options) {
  const Clock::time_point start = Clock::now();
  report_.method = options.method;
  report_.workers = load_workers(options.workers);
  report_.tensors = wanted.size();
  run(checkpoint, place(checkpoint, wanted, options), options);
  report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<TensorStore::Job> TensorStore::place(const Checkpoint& checkpoint, std::span<const Wanted> wanted,
                                                 const LoadOptions& options) {
  const StoreSize size = store_size(wanted, options.method);
  held_ = base::Pages(size.held_bytes, "the weights");
  passing_ = base::Pages(size.passing_bytes, "the weights");
  report_.held_bytes = size.held_bytes;
  report_.mapped_bytes = size.mapped_bytes;
  std::byte* next_kept = held_.data();
  std::byte* next_passing = passing_.data();
  std::vector<Job> jobs;
  for (const Wanted& each : wanted) {
    report_.bytes += each.tensor->bytes;
    Job job{.wanted = each};
    if (stays_mapped(each, options.method)) {
      map_file(checkpoint.shard(each.tensor->shard), each.tensor->shard);
      job.mapped = files_.at(each.tensor->shard).bytes().data() + each.tensor->begin;
      tensors_.emplace(each.name, job.mapped);
      if (!options.digest) continue;
    } else {
      std::byte*& next = each.passing ? next_passing : next_kept;
      job.into = next;
      next += rounded(bytes_in_memory(each));
      tensors_.emplace(each.name, job.into);
    }
    job.digest = &digests_[std::string(each.name)];
    report_.read_bytes += each.tensor->bytes;
    jobs.push_back(job);
  }
  return jobs;
}

void TensorStore::map_file(const Shard& shard, std::size_t index) {
  if (files_.contains(index)) return;
  base::MappedFile file(shard.path);
  if (file.bytes().size() != shard.bytes) {
    throw base::Error({.what = "the file's size changed while it was being loaded", .where = shard.path});
  }
  files_.emplace(index, std::move(file));
}

void TensorStore::run(const Checkpoint& checkpoint, std::vector<Job> jobs, const LoadOptions& options) {
  std::ranges::sort(jobs, {}, [](const Job& job) { return work_order(*job.wanted.tensor); });
  Meter meter(options.watch, report_.read_bytes);
  base::ThreadPool pool(report_.workers);
  std::deque<TensorReader> readers;
  for (int i = 0; i < pool.size(); ++i) readers.emplace_back(checkpoint, meter);
  pool.run(static_cast<std::int64_t>(jobs.size()), [&](std::int64_t task, int worker) {
    const Job& job = jobs[static_cast<std::size_t>(task)];
    TensorReader& reader = readers[static_cast<std::size_t>(worker)];
    const Tensor& tensor = *job.wanted.tensor;
    if (job.mapped != nullptr) {
      *job.digest = reader.digest(tensor, job.mapped);
    } else if (as_it_lies(job.wanted)) {
      *job.digest = reader.read(tensor, job.into);
    } else {
      std::byte* next = job.into;
      *job.digest = reader.stream(tensor, [&](std::span<const std::byte> block) {
        next = convert(block, tensor.dtype, job.wanted.dtype, next);
      });
    }
  });
}

const std::byte* TensorStore::find(std::string_view name) const {
  const auto place = tensors_.find(name);
  if (place == tensors_.end())
    throw std::logic_error("a tensor that was not asked for: " + std::string(name));
  return place->second;
}

void TensorStore::release_passing() { passing_ = base::Pages(); }

}  // namespace aima::model
