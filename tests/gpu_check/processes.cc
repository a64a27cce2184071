// processes.cc: see processes.hpp. The parent hands texts round and understands none but the last:
// what a member has to say at the end.
#include "gpu_check/processes.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <optional>
#include <sstream>
#include <thread>

#include "base/try.hpp"
#include "gpu/call_data.hpp"
#include "gpu_check/case_memory.hpp"
#include "runtime/gpu/host/cuda_device.hpp"
#include "runtime/gpu/kernel_image.hpp"
#include "transport/cuda/driver.hpp"
#include "transport/tcp/transport.hpp"
#include "transport/ucx/transport.hpp"

namespace tutti::gpu_check {
namespace {

using runtime::gpu::CallData;
using runtime::gpu::Device;
using runtime::gpu::factor_of;
using runtime::gpu::GpuOptions;
using runtime::gpu::GpuRank;
using runtime::gpu::GpuSeat;
using runtime::gpu::GpuWorld;
using runtime::gpu::StageCase;
using runtime::gpu::StreamHandle;

constexpr int kChannels = 8;
constexpr std::size_t kTextMax = 1 << 16;
constexpr auto kMappedWithin = std::chrono::seconds(10);
// Others say goodbye when their last call is over, too.
constexpr auto kGoodbyeWithin = std::chrono::seconds(30);

// ---- Texts on a line ----

enum class Word : char { order = 'o', exchange = 'x', result = 'r' };

struct Text {
  Word word = Word::exchange;
  std::string content;
};

bool write_all(int line, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t written = ::send(line, at, bytes, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

bool read_all(int line, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::read(line, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool say(int line, Word word, const std::string& content) {
  const auto bytes = static_cast<std::uint32_t>(content.size());
  return write_all(line, &word, sizeof word) && write_all(line, &bytes, sizeof bytes) &&
         write_all(line, content.data(), bytes);
}

// None: the other end is gone.
std::optional<Text> hear(int line) {
  Text text;
  std::uint32_t bytes = 0;
  if (!read_all(line, &text.word, sizeof text.word) || !read_all(line, &bytes, sizeof bytes) ||
      bytes > kTextMax)
    return std::nullopt;
  text.content.resize(bytes);
  if (!read_all(line, text.content.data(), bytes)) return std::nullopt;
  return text;
}

// How a result begins that says why something cannot be done here.
constexpr char kCannot = '~';
// What a carrier says of itself where all of it goes from device to device.
constexpr std::string_view kByCards = "sends from and receives into device memory";

// ---- A member ----

// What it is to do.
struct Order {
  int rank = 0;
  int ranks = 1;
  int one_in = 1;
  Manner manner = Manner::slots;
  std::uint64_t large = 0;  // elements of the last cases; 0: none
  std::int64_t timeout_ms = 0;
};

bool is_registered(Manner manner) {
  return manner == Manner::registered || manner == Manner::mapped;
}
bool is_apart(Manner manner) { return manner == Manner::by_sockets || manner == Manner::by_cards; }

class MemberWork {
 public:
  explicit MemberWork(int line) : line_(line) {}

  // Until there are no more orders.
  void serve() {
    while (const auto text = hear(line_)) {
      Order order;
      if (text->word != Word::order || text->content.size() != sizeof order) return;
      std::memcpy(&order, text->content.data(), sizeof order);
      const Result<CrewResult> done = work(order);
      if (!say(line_, Word::result, result_of(order, done))) return;
    }
  }

 private:
  static std::string result_of(const Order& order, const Result<CrewResult>& done) {
    if (done.ok())
      return fmt::format("+{} {} {}", done->cases, done->slots_us, done->registered_us);
    if ((order.manner == Manner::by_cards || order.manner == Manner::mapped) &&
        done.status().code() == StatusCode::unsupported)
      return fmt::format("{}{}", kCannot, done.status().message());
    return fmt::format("-rank {}: {}", order.rank, done.status().to_string());
  }

  Result<CrewResult> work(const Order& order) {
    TUTTI_TRY(make_device(order));
    GpuSeat seat;
    seat.device = device_.get();
    seat.rank = order.rank;
    seat.ranks = order.ranks;
    seat.ranks_per_device = order.ranks;
    seat.process = std::to_string(::getpid());
    seat.exchange = [&](const std::string& mine) { return exchange(mine, order.ranks); };
    if (is_apart(order.manner))
      for (int rank = 0; rank < order.ranks; ++rank) seat.hosts.push_back(rank % 2);
    seat.connect = [&] { return connect(order); };
    GpuOptions options;
    options.channels = kChannels;
    options.timeout = std::chrono::milliseconds(order.timeout_ms);
    auto world = GpuWorld::join(seat, options);
    TUTTI_TRY(world);
    const Status can = check_manner(**world, order);
    const Result<CrewResult> done = can.ok() ? run_all(**world, order) : can;
    (*world)->say_goodbye();
    const auto deadline = std::chrono::steady_clock::now() + kGoodbyeWithin;
    while (!(*world)->have_others_left() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return done;
  }

  // Whether it can be done in the order's manner, for all ranks.
  Status check_manner(GpuWorld& world, const Order& order) {
    if (order.manner == Manner::by_cards) return check_carriers(world, order);
    if (order.manner == Manner::mapped) return check_parts(world, order);
    return Status();
  }

  Status check_parts(GpuWorld& world, const Order& order) {
    const auto piece = CaseMemory::make(*device_, 1, true);
    const Status mine = piece.ok()
                            ? in_registered(world, order, piece->data(), 1, [] { return Status(); })
                            : piece.status();
    const auto all = exchange(mine.message(), order.ranks);
    TUTTI_TRY(all);
    for (int rank = 0; rank < order.ranks; ++rank)
      if (const std::string& why = (*all)[static_cast<std::size_t>(rank)]; !why.empty())
        return Status(StatusCode::unsupported, fmt::format("rank {}: {}", rank, why));
    return Status();
  }

  // Whether cards do all of it.
  Status check_carriers(const GpuWorld& world, const Order& order) {
    const auto carriers = exchange(world.describe_carrier(), order.ranks);
    TUTTI_TRY(carriers);
    for (int rank = 0; rank < order.ranks; ++rank)
      if (const std::string& how = (*carriers)[static_cast<std::size_t>(rank)]; how != kByCards)
        return Status(StatusCode::unsupported, fmt::format("rank {} {}", rank, how));
    return Status();
  }

  Status make_device(const Order& order) {
    if (device_) return Status();
    const auto& found = transport::cuda::find();
    if (found.driver == nullptr) return Status(StatusCode::unsupported, found.reason);
    const auto count = found.driver->device_count();
    TUTTI_TRY(count);
    auto made = runtime::gpu::make_cuda_device(order.rank % std::max(1, *count),
                                               runtime::gpu::kernel_image());
    TUTTI_TRY(made);
    device_ = *std::move(made);
    return Status();
  }

  Result<std::vector<std::string>> exchange(const std::string& mine, int ranks) {
    if (!say(line_, Word::exchange, mine))
      return Status(StatusCode::peer_lost, "the parent is gone");
    std::vector<std::string> all;
    while (all.size() < static_cast<std::size_t>(ranks)) {
      auto text = hear(line_);
      if (!text) return Status(StatusCode::peer_lost, "the parent is gone");
      all.push_back(std::move(text->content));
    }
    return all;
  }

  // Before a call in registered memory, when all have it mapped: to map what has an address that
  // was another allocation's may have to wait for the calls of a device, which then wait for
  // nobody.
  Status meet(const Order& order) {
    return is_registered(order.manner) ? exchange("", order.ranks).status() : Status();
  }

  Result<std::unique_ptr<Transport>> connect(const Order& order) {
    transport::TransportOptions options;
    options.rank = order.rank;
    options.size = order.ranks;
    options.frame_bytes_max = 2 * GpuOptions().slot_bytes;
    options.ranks_share_cores = true;
    const auto with = [&](const std::string& mine) { return exchange(mine, order.ranks); };
    return order.manner == Manner::by_cards ? transport::make_ucx_transport(options, {}, with)
                                            : transport::make_tcp_transport(options, with);
  }

  Result<CrewResult> run_all(GpuWorld& world, const Order& order) {
    const auto stream = device_->make_stream();
    TUTTI_TRY(stream);
    CrewResult result;
    Status status = run_cases(world, order, *stream, result);
    if (status.ok() && order.manner == Manner::registered)
      status = measure(world, order, *stream, result);
    device_->destroy_stream(*stream);
    TUTTI_TRY(status);
    return result;
  }

  Status run_cases(GpuWorld& world, const Order& order, StreamHandle stream, CrewResult& result) {
    std::vector<StageCase> cases = cases_of(order.ranks, {0, 1, 7, 1000}, order.one_in);
    if (is_registered(order.manner))  // what is worth it
      for (const StageCase& what : cases_of(order.ranks, {50021}, order.one_in))
        cases.push_back(what);
    if (order.large > 0)
      for (const StageCase& what : cases_of(order.ranks, {order.large}, 97)) cases.push_back(what);
    for (const StageCase& what : cases)
      TUTTI_TRY(run_case(world, order, what, stream).with_context(what.text()));
    result.cases = static_cast<int>(cases.size());
    return Status();
  }

  // Memory that peers have mapped, for as long as something is done in it.
  Status in_registered(GpuWorld& world, const Order& order, std::byte* memory, std::size_t bytes,
                       const std::function<Status()>& work) {
    if (!is_registered(order.manner)) return work();
    GpuRank& rank = world.rank(order.rank);
    const auto registration = rank.register_memory(memory, bytes);
    TUTTI_TRY(registration);
    const auto deadline = std::chrono::steady_clock::now() + kMappedWithin;
    while (!rank.is_mapped(memory, bytes)) {
      if (std::chrono::steady_clock::now() > deadline)
        return Status(StatusCode::timeout, "registered memory was not mapped by all peers");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    const Status done = work();
    const Status deregistered = rank.deregister_memory(*registration);
    return done.ok() ? deregistered : done;
  }

  // The same sum in memory that is registered, and in other memory.
  Status measure(GpuWorld& world, const Order& order, StreamHandle stream, CrewResult& result) {
    if (order.large == 0) return Status();
    const std::size_t bytes = order.large * size_of(DataType::float32);
    const auto memory = device_->allocate(bytes);
    TUTTI_TRY(memory);
    const auto take = [&](double& us) {
      const auto time = time_of_sum(world, order, *memory, stream);
      if (time.ok()) us = *time;
      return time.status();
    };
    Status status = device_->zero(*memory, bytes);
    if (status.ok()) status = take(result.slots_us);
    if (status.ok())
      status = in_registered(world, order, *memory, bytes, [&] {
        TUTTI_TRY(meet(order));
        return take(result.registered_us);
      });
    device_->deallocate(*memory);
    return status;
  }

  // Of one of many that follow each other. Units: us.
  Result<double> time_of_sum(GpuWorld& world, const Order& order, std::byte* memory,
                             StreamHandle stream) {
    constexpr int kCalls = 10;
    runtime::gpu::GpuCall call;
    call.input = call.output = memory;
    call.count = order.large;
    const auto begin = device_->make_event();
    TUTTI_TRY(begin);
    const auto end = device_->make_event();
    TUTTI_TRY(end);
    Status status = world.rank(order.rank).call(call, stream);
    if (status.ok()) status = device_->record(*begin, stream);
    for (int time = 0; time < kCalls; ++time)
      if (status.ok()) status = world.rank(order.rank).call(call, stream);
    if (status.ok()) status = device_->record(*end, stream);
    if (status.ok()) status = world.rank(order.rank).synchronize(stream);
    Result<double> us = status;
    if (status.ok()) us = device_->elapsed_us(*begin, *end);
    device_->destroy_event(*begin);
    device_->destroy_event(*end);
    TUTTI_TRY(us);
    return *us / kCalls;
  }

  Status run_case(GpuWorld& world, const Order& order, const StageCase& what, StreamHandle stream) {
    ScheduleShape shape;
    shape.collective = what.collective;
    shape.ranks = order.ranks;
    shape.root = what.root;
    const CallData data(
        {shape, what.type, what.op, what.count, what.in_place, what.seed, what.scaled});
    const CallData::Seat& seat = data.seat(order.rank);
    std::vector<std::byte> image = seat.image;
    const auto memory = CaseMemory::make(*device_, image.size(), order.manner == Manner::mapped);
    TUTTI_TRY(memory);
    std::byte* const at = memory->data();
    runtime::gpu::GpuCall call;
    call.collective = what.collective;
    call.type = what.type;
    call.op = what.op;
    call.root = what.root;
    call.count = what.count;
    call.has_factor = what.scaled;
    if (what.scaled) call.factor = factor_of(order.rank, what.type);
    call.input = at + seat.input_at;
    call.output = at + seat.output_at;
    Status status = device_->copy_in(at, image.data(), image.size());
    if (status.ok())
      status = in_registered(world, order, at, image.size(), [&] {
        TUTTI_TRY(meet(order));
        TUTTI_TRY(world.rank(order.rank).call(call, stream));
        return world.rank(order.rank).synchronize(stream);
      });
    if (status.ok()) status = device_->copy_out(image.data(), at, image.size());
    TUTTI_TRY(status);
    const std::string wrong = data.judge(order.rank, image.data());
    return wrong.empty() ? Status() : Status(StatusCode::internal, wrong);
  }

  const int line_;
  std::unique_ptr<Device> device_;
};

}  // namespace

// ---- The parent ----

namespace {

// As a member says it, behind a sign.
CrewResult result_of(const std::string& text) {
  CrewResult result;
  std::istringstream(text.substr(1)) >> result.cases >> result.slots_us >> result.registered_us;
  return result;
}

}  // namespace

Result<std::unique_ptr<Crew>> Crew::start(int members) {
  std::unique_ptr<Crew> crew(new Crew);
  for (int i = 0; i < members; ++i) {
    int ends[2] = {};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return Status(StatusCode::system_error, fmt::format("socketpair: {}", std::strerror(errno)));
    base::Descriptor mine(ends[0]);
    const base::Descriptor theirs(ends[1]);
    const pid_t process = ::fork();
    if (process < 0)
      return Status(StatusCode::system_error, fmt::format("fork: {}", std::strerror(errno)));
    if (process == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (Member& other : crew->members_) other.line.close();
      mine.close();
      MemberWork(theirs.number()).serve();
      ::_exit(0);
    }
    crew->members_.push_back({process, std::move(mine)});
  }
  return crew;
}

Crew::~Crew() {
  for (Member& member : members_) member.line.close();
  for (const Member& member : members_) ::waitpid(member.process, nullptr, 0);
}

Result<CrewResult> Crew::run(int ranks, const Extent& extent, Manner manner) {
  const auto crew = std::span(members_).first(static_cast<std::size_t>(ranks));
  Order order;
  order.ranks = ranks;
  order.manner = manner;
  order.one_in = extent.one_in * (manner == Manner::slots ? 7 : 29);
  order.large = extent.large.empty() ? 0 : extent.large.front();
  order.timeout_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(extent.options.timeout).count();
  const Status gone(StatusCode::peer_lost, "a process has ended");
  for (Member& member : crew) {
    if (!say(member.line.number(), Word::order,
             std::string(reinterpret_cast<const char*>(&order), sizeof order)))
      return gone;
    ++order.rank;
  }
  while (true) {
    std::vector<Text> texts;
    for (const Member& member : crew) {
      auto text = hear(member.line.number());
      if (!text) return gone;
      texts.push_back(*std::move(text));
    }
    const auto ended = [](const Text& text) { return text.word == Word::result; };
    const auto wrong = [](const Text& text) {
      return text.word == Word::result && !text.content.starts_with('+');
    };
    if (const auto first = std::find_if(texts.begin(), texts.end(), wrong); first != texts.end()) {
      if (first->content.starts_with(kCannot))
        return Status(StatusCode::unsupported, first->content.substr(1));
      std::string all;  // which of them is the cause, and which fail because of it
      for (const Text& text : texts)
        if (wrong(text)) all += (all.empty() ? "" : "; ") + text.content.substr(1);
      return Status(StatusCode::internal, all);
    }
    if (std::all_of(texts.begin(), texts.end(), ended)) return result_of(texts.front().content);
    if (std::any_of(texts.begin(), texts.end(), ended))
      return Status(StatusCode::internal, "ranks were not in step");
    for (const Member& member : crew)
      for (const Text& text : texts)
        if (!say(member.line.number(), Word::exchange, text.content)) return gone;
  }
}

namespace {

const char* name_of(Manner manner) {
  switch (manner) {
    case Manner::slots:
      break;
    case Manner::registered:
      return "ranks of several processes, in registered memory";
    case Manner::mapped:
      return "ranks of several processes, in memory of cuMemCreate";
    case Manner::by_sockets:
      return "ranks of several processes, as on two hosts";
    case Manner::by_cards:
      return "ranks of several processes, as on two hosts, from device to device by UCX";
  }
  return "ranks of several processes";
}

// False: members may still wait for each other, and there can be no further orders.
bool check_crew(Crew& crew, const Extent& extent, Manner manner, Report& report) {
  const char* const name = name_of(manner);
  std::string done;
  Table table{"all_reduce of processes",
              "float32, in place: through slots, and in registered memory; us a call, on rank 0",
              {"processes", "bytes", "slots", "registered"},
              {}};
  for (int ranks = 2; ranks <= crew.members(); ++ranks) {
    const auto result = crew.run(ranks, extent, manner);
    if (result.status().code() == StatusCode::unsupported) {
      report.did_not_run(name, result.status().message());
      return true;
    }
    if (!result.ok()) {
      report.failed(name, fmt::format("of {}: {}", ranks, result.status().to_string()));
      return false;
    }
    done +=
        fmt::format("{}{} cases of {} processes", done.empty() ? "" : ", ", result->cases, ranks);
    if (result->slots_us > 0)
      table.rows.push_back({std::to_string(ranks), std::to_string(4 * extent.large.front()),
                            fmt::format("{:.1f}", result->slots_us),
                            fmt::format("{:.1f}", result->registered_us)});
  }
  report.passed(name, done);
  if (!table.rows.empty()) report.table(table);
  return true;
}

}  // namespace

void check_processes(Crew& crew, const Extent& extent, Report& report) {
  for (const Manner manner :
       {Manner::slots, Manner::registered, Manner::mapped, Manner::by_sockets, Manner::by_cards})
    if (!check_crew(crew, extent, manner, report)) return;
}

}  // namespace tutti::gpu_check
