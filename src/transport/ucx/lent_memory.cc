// lent_memory.cc: see lent_memory.hpp.
#include "transport/ucx/lent_memory.hpp"

#include <fmt/format.h>

#include <mutex>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/try.hpp"

namespace tutti::transport::ucx {
namespace {

// What has been kept, and the context that it is registered with.
struct Kept {
  std::shared_ptr<Context> context;
  Lent lent;
};

}  // namespace

Status LentRegions::can_add(const Context& context, MemoryKind kind) {
  if (kind == MemoryKind::host || context.knows(UCS_MEMORY_TYPE_CUDA)) return Status();
  return Status(StatusCode::unsupported, "this UCX was built without CUDA, or finds none");
}

Result<std::uint32_t> LentRegions::add(const std::shared_ptr<Context>& context,
                                       const LentMemory& memory) {
  context_ = context;
  Lent lent;
  lent.memory = memory;
  TUTTI_TRY(can_add(*context, memory.kind));
  if (memory.kind != MemoryKind::host) TUTTI_TRY(enlist(lent));
  regions_.push_back(std::move(lent));
  return static_cast<std::uint32_t>(regions_.size());
}

Status LentRegions::enlist(Lent& lent) const {
  lent.is_registered = true;
  ucp_mem_map_params_t parameters = {};
  parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                          UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  parameters.address = lent.memory.memory.get();
  parameters.length = lent.memory.bytes;
  parameters.memory_type = lent.type();
  const Functions& f = context_->functions();
  const ucs_status_t status = f.mem_map(context_->handle(), &parameters, &lent.handle);
  if (status == UCS_OK) return Status();
  lent.handle = nullptr;
  return Status(StatusCode::unsupported, fmt::format("UCX cannot register {} bytes: {}",
                                                     lent.memory.bytes, f.status_string(status)));
}

// The host's memory UCX moves without that, too.
Lent& LentRegions::at(const LentPlace& place) {
  TUTTI_ASSERT(place.region >= 1 && place.region <= regions_.size(), "no such lent memory");
  Lent& lent = regions_[place.region - 1];
  TUTTI_ASSERT(place.bytes <= lent.memory.bytes && place.offset <= lent.memory.bytes - place.bytes,
               "a place beyond the end of lent memory");
  if (!lent.is_registered) static_cast<void>(enlist(lent));
  return lent;
}

void LentRegions::end() {
  for (Lent& lent : std::exchange(regions_, {})) {
    if (lent.under_way > 0 || lent.is_doubtful) {
      keep(std::move(lent));
      continue;
    }
    if (lent.handle != nullptr &&
        context_->functions().mem_unmap(context_->handle(), lent.handle) != UCS_OK)
      keep(std::move(lent));
  }
}

void LentRegions::keep_all() {
  for (Lent& lent : std::exchange(regions_, {})) keep(std::move(lent));
}

void LentRegions::keep(Lent&& lent) {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::vector<Kept>;
  const std::lock_guard lock(*mutex);
  kept->push_back({context_, std::move(lent)});
}

}  // namespace tutti::transport::ucx
