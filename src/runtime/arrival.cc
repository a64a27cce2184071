// Writes and reads arrival records field by field, so that the bytes do not depend on padding.
#include "runtime/arrival.hpp"

#include <cstring>

#include <fmt/format.h>

#include "base/assert.hpp"

namespace tutti::runtime {
namespace {

constexpr std::uint16_t kMagic = 0x5441;  // "TA"

// Kinds of calls. Blocks that differ in size never travel direct.
enum Kind : std::uint8_t { kPlain, kDirect, kVaried };

class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  template <typename T>
  void put(T value) {
    std::memcpy(out_.data() + at_, &value, sizeof(T));
    at_ += sizeof(T);
  }

 private:
  std::span<std::byte> out_;
  std::size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, in_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

 private:
  std::span<const std::byte> in_;
  std::size_t at_ = 0;
};

// Operations on the wire: every ReduceOp, then the special kinds.
constexpr auto kPlainOps = static_cast<std::uint8_t>(std::size(kAllReduceOps));

std::string_view operation_name(const Signature& s) {
  if (s.special == SpecialKind::premul_sum) return "premul_sum";
  return s.special == SpecialKind::custom ? "custom operation" : tutti::to_string(s.op);
}

}  // namespace

std::string to_string(const Signature& s) {
  if (s.varied && s.collective == Collective::send_recv)
    return fmt::format("group of sends and receives, plan {:016x}", s.plan_hash);
  std::string text =
      fmt::format("{}{} #{}: {} x {}", tutti::to_string(s.collective), s.varied ? "_v" : "",
                  s.sequence, s.count, tutti::to_string(s.type));
  if (is_reduction(s.collective)) text += fmt::format(", {}", operation_name(s));
  if (has_root(s.collective)) text += fmt::format(", root {}", s.root);
  return text + fmt::format(", plan {:016x}", s.plan_hash);
}

std::string disagreement(Rank rank, const Signature& signature, Rank other,
                         const Signature& theirs) {
  Signature same = theirs;
  same.history = signature.history;
  if (same == signature && theirs.history != signature.history)
    return fmt::format(
        "ranks made different calls before {}: up to it, rank {} made others than {}",
        to_string(signature), rank, other);
  return fmt::format("ranks made different calls: rank {} called {}, rank {} called {}", rank,
                     to_string(signature), other, to_string(theirs));
}

void encode_signature(const Signature& s, std::span<std::byte, kArrivalBytes> out) {
  Writer writer(out);
  writer.put(kMagic);
  writer.put(s.sequence);
  writer.put(static_cast<std::uint8_t>(s.collective));
  writer.put(static_cast<std::uint8_t>(s.type));
  const auto special = static_cast<std::uint8_t>(s.special);
  writer.put(special == 0 ? static_cast<std::uint8_t>(s.op)
                          : static_cast<std::uint8_t>(kPlainOps + special - 1));
  writer.put(static_cast<std::uint8_t>(s.direct ? kDirect : s.varied ? kVaried : kPlain));
  writer.put(s.root);
  TUTTI_ASSERT(s.count <= kCountMax, "a count that memory can hold");
  writer.put(static_cast<std::uint32_t>(s.count));
  writer.put(static_cast<std::uint16_t>(s.count >> 32));
  writer.put(s.history);
  writer.put(s.plan_hash);
}

void encode(const Arrival& arrival, std::span<std::byte> out) {
  const Signature& s = arrival.signature;
  TUTTI_ASSERT(out.size() >= encoded_bytes(s), "the arrival record fits");
  encode_signature(s, out.first<kArrivalBytes>());
  if (!s.direct) return;
  Writer writer(out.subspan(kArrivalBytes));
  for (const MemoryReference& reference : arrival.memory) {
    writer.put(reference.region);
    writer.put(reference.offset);
  }
}

namespace {

std::optional<Signature> take_signature(Reader& reader) {
  if (reader.take<std::uint16_t>() != kMagic) return std::nullopt;
  Signature s;
  s.sequence = reader.take<std::uint32_t>();
  const auto collective = reader.take<std::uint8_t>();
  const auto type = reader.take<std::uint8_t>();
  const auto op = reader.take<std::uint8_t>();
  const auto kind = reader.take<std::uint8_t>();
  if (collective >= std::size(kAllCollectives) || type >= std::size(kAllDataTypes) ||
      op > kPlainOps + static_cast<int>(SpecialKind::custom) - 1 || kind > kVaried)
    return std::nullopt;
  s.collective = static_cast<Collective>(collective);
  s.type = static_cast<DataType>(type);
  if (op < kPlainOps)
    s.op = static_cast<ReduceOp>(op);
  else
    s.special = static_cast<SpecialKind>(op - kPlainOps + 1);
  s.direct = kind == kDirect;
  s.varied = kind == kVaried;
  s.root = reader.take<std::int32_t>();
  s.count = reader.take<std::uint32_t>();
  s.count |= static_cast<std::uint64_t>(reader.take<std::uint16_t>()) << 32;
  s.history = reader.take<std::uint32_t>();
  s.plan_hash = reader.take<std::uint64_t>();
  return s;
}

}  // namespace

std::optional<Signature> decode_signature(std::span<const std::byte> bytes) {
  if (bytes.size() < kArrivalBytes) return std::nullopt;
  Reader reader(bytes);
  return take_signature(reader);
}

std::optional<Arrival> decode_arrival(std::span<const std::byte> bytes) {
  if (bytes.size() < kArrivalBytes) return std::nullopt;
  Reader reader(bytes);
  const auto signature = take_signature(reader);
  if (!signature) return std::nullopt;
  Arrival arrival{*signature, {}};
  if (!signature->direct) return arrival;
  if (bytes.size() < kDirectArrivalBytes) return std::nullopt;
  for (MemoryReference& reference : arrival.memory) {
    reference.region = reader.take<std::uint32_t>();
    reference.offset = reader.take<std::uint64_t>();
  }
  return arrival;
}

}  // namespace tutti::runtime
