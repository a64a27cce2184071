// net_plugin_puppet_test.cc: a peer of the net plugin transport that is no Tutti: strangers,
// nonsense, connections that end, last words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "transport/net_plugin/plugin.hpp"
#include "transport/net_plugin/transport.hpp"
#include "transport/net_plugin/wire.hpp"
#include "unit/transport/net_plugin_worlds.hpp"

namespace tutti::transport {
namespace {

using conformance::failure_of;
using conformance::ranks;
using conformance::set_net_faults;
using net_plugin::Device;
using net_plugin::Handle;
using net_plugin::open_device;
using net_plugin::RecordHeader;
using net_plugin::RecordKind;
using testing::AllOf;
using testing::HasSubstr;

// A rank 1 that is a device and no transport, to say what no Tutti says. Rank 0 is real.
class Puppet {
 public:
  explicit Puppet(const conformance::NetFaults& faults = {}) {
    set_net_faults(faults);
    device_ = std::move(open_device({.names = "kit_v11"}, 7, 1)).value();
    net_plugin::Card card;
    card.plugin = "kit v11";
    card.nonce = std::string(kNonceBytes, 'p');
    card.frame_bytes_max = 4096;
    card.frames = 4;
    card.channel_count = 1;
    card.context = 7;
    card.handles.resize(2);
    EXPECT_TRUE(device_->listen(card.handles[0], listener_).ok());
    const auto exchange = [&](const std::string& mine) -> Result<std::vector<std::string>> {
      rank0_card_ = net_plugin::parse_card(mine).value();
      return std::vector<std::string>{mine, net_plugin::encode_card(card)};
    };
    rank0 = std::move(make_net_plugin_transport(ranks(2), {.names = "kit_v11"}, exchange)).value();
    endpoint = rank0->endpoint(1, 0).value();
  }
  ~Puppet() {
    hang_up();
    rank0.reset();
    if (receiver_ != nullptr) device_->close_receiver(receiver_);
    device_->close_listener(listener_);
  }

  void call() {
    connect();
    ASSERT_TRUE(
        device_->register_memory(sender_, memory_.data(), memory_.size(), registration_).ok());
  }
  void connect() {
    Handle handle = rank0_card_.handles[1];
    for (int i = 0; i < 1000 && sender_ == nullptr; ++i)
      ASSERT_TRUE(device_->connect(handle, sender_).ok());
    ASSERT_NE(sender_, nullptr);
  }
  void hang_up() {
    if (sender_ == nullptr) return;
    device_->deregister_memory(sender_, registration_);
    device_->close_sender(std::exchange(sender_, nullptr));
  }
  // What rank 0 says is accepted, and not read.
  void answer() {
    for (int i = 0; i < 1000 && receiver_ == nullptr; ++i) {
      ASSERT_TRUE(rank0->poll().ok());
      ASSERT_TRUE(device_->accept(listener_, receiver_).ok());
    }
  }

  void say(std::string_view bytes) {
    std::memcpy(memory_.data(), bytes.data(), bytes.size());
    void* request = nullptr;
    bool done = false;
    std::size_t count = 0;
    ASSERT_TRUE(device_->send(sender_, memory_.data(), bytes.size(), registration_, request).ok());
    for (int i = 0; i < 1000 && !done; ++i) {
      static_cast<void>(rank0->poll());
      ASSERT_TRUE(device_->test(request, bytes.size(), done, count).ok());
    }
    ASSERT_TRUE(done);
  }
  void say(RecordKind kind, std::uint32_t tag, std::uint64_t released, std::string_view payload) {
    const RecordHeader header{kind, tag, released};
    say(std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + std::string(payload));
  }
  void greet(net_plugin::Hello hello = {7, 1, 0, 0}, const std::string& secret = "s3cret") {
    const std::string text = net_plugin::encode_hello(
        hello, Authenticator(secret), {std::string(kNonceBytes, 'p'), rank0_card_.nonce});
    say(RecordKind::hello, 0, 0, text);
  }
  bool receives(Frame& frame) {
    for (int i = 0; i < 3000 && !endpoint->peek(frame); ++i) {
      EXPECT_TRUE(rank0->poll().ok());
      rank0->sleep(100);
    }
    return endpoint->peek(frame);
  }
  void expect_corrupt(std::string_view what) {
    const Status status = failure_of(*rank0);
    EXPECT_EQ(status.code(), StatusCode::corrupt_data) << status.to_string();
    EXPECT_EQ(status.culprit(), 1);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 1"), HasSubstr(std::string(what))));
    EXPECT_EQ(endpoint->status(), status);
  }

  std::unique_ptr<Transport> rank0;
  Endpoint* endpoint = nullptr;

 private:
  std::unique_ptr<Device> device_;
  net_plugin::Card rank0_card_;
  void* listener_ = nullptr;
  void* sender_ = nullptr;
  void* receiver_ = nullptr;
  void* registration_ = nullptr;
  std::vector<std::byte> memory_ = std::vector<std::byte>(8192);
};

TEST(NetPlugin, FramesFromThePuppetArrive) {
  Puppet puppet;
  puppet.call();
  puppet.greet();
  puppet.say(RecordKind::frame, 42, 0, "abc");
  Frame frame;
  ASSERT_TRUE(puppet.receives(frame));
  EXPECT_EQ(frame.tag, 42U);
  EXPECT_EQ(frame.payload.size(), 3U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(frame.payload.data()) % 8, 0U);
}

// Whoever cannot say who it is, is hung up on; the real one still gets in.
TEST(NetPlugin, StrangersAreTurnedAway) {
  const std::vector<std::function<void(Puppet&)>> strangers = {
      [](Puppet& puppet) {
        puppet.greet({7, 1, 0, 0}, "guess");
      },
      [](Puppet& puppet) {
        puppet.greet({8, 1, 0, 0});
      },  // another communicator
      [](Puppet& puppet) {
        puppet.greet({7, 2, 0, 0});
      },  // another rank
      [](Puppet& puppet) {
        puppet.greet({7, 1, 1, 0});
      },  // for another rank
      [](Puppet& puppet) {
        puppet.greet({7, 1, 0, 1});
      },  // on another channel
      [](Puppet& puppet) { puppet.say(RecordKind::frame, 1, 0, "abc"); },
      [](Puppet& puppet) { puppet.say(RecordKind::hello, 1, 0, ""); },
      [](Puppet& puppet) { puppet.say("x"); },
      [](Puppet&) {},
  };
  for (const auto& stranger : strangers) {
    Puppet puppet;
    puppet.call();
    stranger(puppet);
    for (int i = 0; i < 50; ++i) {
      Frame frame;
      ASSERT_TRUE(puppet.rank0->poll().ok());
      ASSERT_FALSE(puppet.endpoint->peek(frame));
    }
    puppet.hang_up();
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(puppet.rank0->poll().ok());
    puppet.call();
    puppet.greet();
    puppet.say(RecordKind::frame, 2, 0, "");
    Frame frame;
    ASSERT_TRUE(puppet.receives(frame));
    EXPECT_EQ(frame.tag, 2U);
  }
}

TEST(NetPlugin, StrangersWithoutEndAreAnError) {
  Puppet puppet;
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    puppet.call();
    puppet.hang_up();
    status = puppet.rank0->poll().status();
  }
  EXPECT_EQ(status.code(), StatusCode::corrupt_data) << status.to_string();
}

TEST(NetPlugin, NonsenseIsCorruptData) {
  const std::string payload(4096, 'x');
  const std::vector<std::pair<std::string_view, std::function<void(Puppet&)>>> nonsense = {
      {"without a header", [](Puppet& puppet) { puppet.say("short"); }},
      {"no known kind", [](Puppet& p) { p.say(static_cast<RecordKind>(9), 0, 0, ""); }},
      {"no known kind", [](Puppet& p) { p.say(RecordKind::hello, 0, 0, ""); }},
      {"news that are none", [](Puppet& p) { p.say(RecordKind::news, 0, 0, "12345678"); }},
      {"released more frames", [](Puppet& p) { p.say(RecordKind::frame, 0, 1, ""); }},
      {"frame without room",
       [&](Puppet& p) { p.say(RecordKind::frame, 0, 0, payload + "one more"); }},
      {"frame without room",
       [](Puppet& p) {
         for (int i = 0; i < 5; ++i) p.say(RecordKind::frame, 0, 0, "");
       }},
  };
  for (const auto& [what, say] : nonsense) {
    Puppet puppet;
    puppet.call();
    puppet.greet();
    say(puppet);
    puppet.expect_corrupt(what);
  }
}

TEST(NetPlugin, APeerThatHangsUpIsLost) {
  Puppet puppet;
  puppet.call();
  puppet.greet();
  puppet.say(RecordKind::frame, 1, 0, "abc");
  puppet.hang_up();
  const Status status = failure_of(*puppet.rank0);
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 hung up"));
}

TEST(NetPlugin, APeerThatHangsUpAfterItsGoodbyeIsNot) {
  Puppet puppet;
  puppet.answer();
  puppet.call();
  puppet.greet();
  puppet.say(RecordKind::frame, 1, 0, "abc");
  puppet.say(RecordKind::goodbye, 0, 0, "");
  puppet.hang_up();
  Frame frame;
  ASSERT_TRUE(puppet.receives(frame));
  puppet.endpoint->release();
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(puppet.rank0->poll().ok());
    puppet.rank0->sleep(100);
  }
  EXPECT_TRUE(puppet.endpoint->status().ok());
}

// The plugin takes nothing more to receive into, but what it has can be read.
TEST(NetPlugin, WhatCameBeforeTheEndIsHeard) {
  Puppet puppet({.deaf = 1});
  puppet.answer();
  puppet.call();
  puppet.greet();
  puppet.say(RecordKind::frame, 1, 0, "abc");
  Frame frame;
  ASSERT_TRUE(puppet.receives(frame));
  puppet.say(RecordKind::goodbye, 0, 0, "");
  puppet.hang_up();
  puppet.endpoint->release();
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(puppet.rank0->poll().ok());
    puppet.rank0->sleep(100);
  }
  set_net_faults({});
}

// What the plugin cannot do for this rank is not taken for a stranger.
TEST(NetPlugin, APluginThatRefusesIsAnErrorOfItsOwn) {
  for (const auto& [refuse, what] : {std::pair(1, "accept of kit"), std::pair(3, "regMr of kit")}) {
    Puppet puppet;
    puppet.answer();
    set_net_faults({.refuse = refuse});
    puppet.connect();
    const Status status = failure_of(*puppet.rank0);
    EXPECT_EQ(status.code(), StatusCode::system_error) << status.to_string();
    EXPECT_EQ(status.culprit(), 1);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("cannot be accepted"), HasSubstr(what)));
    set_net_faults({});
  }
}

// The real rank 0 may not close what was never made.
TEST(NetPlugin, ARefusedConnectionIsAPeerThatCannotBeReached) {
  Puppet puppet({.refuse = 2});
  EXPECT_THAT(failure_of(*puppet.rank0).message(),
              AllOf(HasSubstr("rank 1 cannot be reached"), HasSubstr("connect of kit")));
  set_net_faults({});
}

TEST(NetPlugin, LengthsThatCannotBeAreCorruptData) {
  for (const int excess : {1 << 20, -(1 << 20)}) {
    Puppet puppet;
    puppet.call();
    set_net_faults({.excess = excess});
    puppet.greet();
    puppet.say(RecordKind::frame, 1, 0, "abc");
    puppet.expect_corrupt("test of kit says that");
  }
  set_net_faults({});
}

// Counters never fall, whatever is said.
TEST(NetPlugin, NewsThatAreOldChangeNothing) {
  Puppet puppet;
  puppet.call();
  puppet.greet();
  for (const std::uint64_t value : {5U, 3U}) {
    net_plugin::SignalValues values{};
    values[static_cast<std::size_t>(Signal::granted)] = value;
    puppet.say(RecordKind::news, 0, 0,
               {reinterpret_cast<const char*>(values.data()), sizeof(values)});
  }
  puppet.say(RecordKind::frame, 1, 0, "");
  Frame frame;
  ASSERT_TRUE(puppet.receives(frame));
  EXPECT_EQ(puppet.endpoint->signalled(Signal::granted), 5U);
}

// A rank that fails for nobody's fault, and one that says something impossible of whose it was.
TEST(NetPlugin, LastWordsAreBelievedWithinReason) {
  const std::pair<std::uint32_t, Status> words[] = {
      {0x80000000U | 3U << 24 | 0xffffffU, Status(StatusCode::mismatch, "rank 1 failed: mismatch")},
      {0x80000000U | 5U << 24 | 77U, Status(StatusCode::peer_lost, "rank 1 failed", 1)},
      {0x80000000U | 5U << 24 | 0U, Status(StatusCode::peer_lost, "rank 1 failed", 1)},
      {0U, Status(StatusCode::peer_lost, "rank 1 failed", 1)},
  };
  for (const auto& [word, expected] : words) {
    Puppet puppet;
    puppet.call();
    puppet.greet();
    puppet.say(RecordKind::failed, word, 0, "");
    EXPECT_EQ(failure_of(*puppet.rank0), expected) << std::hex << word;
  }
}

}  // namespace
}  // namespace tutti::transport
