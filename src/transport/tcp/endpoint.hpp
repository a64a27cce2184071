// endpoint.hpp: one rank's connections to one peer on one channel, and what their ends mean.
//
// A rank may leave in good order before others have read what it sent or have stopped answering
// it; a rank that is gone without a goodbye has died. Knows flows; does not know epoll or who
// accepts connections (transport.cc).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/tcp/flow.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport::tcp {

class Mesh;

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(Mesh& mesh, Rank peer, int channel, std::uint32_t number)
      : mesh_(mesh), peer_(peer), channel_(channel), number_(number) {}

  std::span<std::byte> reserve(std::size_t bytes) override;
  void commit(std::uint32_t tag, std::size_t bytes) override;
  bool send(std::uint32_t tag, std::span<const std::byte> head,
            std::span<const std::byte> body) override;
  bool peek(Frame& frame) override;
  void release() override;
  bool peek_head(std::size_t bytes, Frame& frame) override;
  Taken take(std::uint32_t tag, std::size_t head, std::span<std::byte> place) override;
  void signal(Signal which, std::uint64_t value) override;
  std::uint64_t signalled(Signal which) override { return signals_in_.value(which); }
  MemoryReference export_memory(const void*, std::size_t) override { return {}; }
  std::byte* import_memory(const MemoryReference&, std::size_t) override { return nullptr; }
  Status status() const override { return status_; }

  // ---- For the transport ----

  // Opens the connection to the peer, so that its death is seen even by those who only receive.
  Status connect();
  Status attach_frames(Socket socket, std::string last_words_key);
  void attach_signals(Socket socket);

  // Moves what can be moved. True when anything did.
  bool serve();
  // True when serve() would find something to do now.
  bool has_work() const;

  void fail(const Status& status);
  // Tells the peer why this rank gives up, so that the news travels on.
  void pass_on(const Status& failure);
  // The peer's side of an ended connection cannot be told from its death before all waiting
  // connections have been accepted.
  bool awaits_verdict() const;
  void hear_last_words();  // fails with what they say
  void judge();            // and without any, with how the connection ended

  // True when the peer has connected and this rank has not.
  bool called() const {
    return status_.ok() && (frames_in_.attached() || signals_in_.attached()) &&
           !frames_out_.opened();
  }

  bool signals_flushed() const { return signals_out_.flushed(); }
  bool flushed() const { return frames_out_.flushed() && signals_out_.flushed(); }
  // The same, and the peer's host has it.
  bool delivered() const { return frames_out_.delivered() && signals_out_.delivered(); }
  // True when all that can be said has been said.
  bool say_goodbye();
  std::size_t memory_bytes() const {
    return sizeof(*this) + frames_out_.memory_bytes() + frames_in_.memory_bytes();
  }

  // Something happened on the connection that this rank opened, or on the one that it accepted.
  void on_opened_events(std::uint32_t events);
  void on_accepted_events(std::uint32_t events);

  const FrameReceiver& frames_in() const { return frames_in_; }
  SignalSender& signals_out() { return signals_out_; }
  SignalReceiver& signals_in() { return signals_in_; }

  bool listed = false;  // in the transport's list of endpoints to serve

 private:
  Introduce introduce(Purpose purpose) const;
  bool can_send();
  void share_connection();
  bool peer_left() const;
  bool believe(std::uint32_t last_words);
  bool waited_for_news();
  void lose(const std::string& text);

  Mesh& mesh_;
  Rank peer_;
  int channel_;
  std::uint32_t number_;
  FrameSender frames_out_;
  FrameReceiver frames_in_;
  SignalSender signals_out_;
  SignalReceiver signals_in_;
  Status status_;
  std::optional<std::chrono::steady_clock::time_point> unreached_since_;
};

}  // namespace tutti::transport::tcp
