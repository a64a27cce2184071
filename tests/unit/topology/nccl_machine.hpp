// nccl_machine.hpp: a made-up machine as NCCL would describe it: two processors, each with a switch
// that has two GPUs and a NIC; all GPUs on NVSwitches; a NIC of sockets.
#pragma once

namespace tutti::testing {

inline constexpr const char* kNcclMachineXml = R"(<!-- made up -->
<system version="1">
  <cpu host_hash="0x1" numaid="0" affinity="00000000,0000000f" arch="x86_64"
       vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:0A:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:f0:00.0" count="9" tclass="0x068000"/>
          <nvlink target="0000:f1:00.0" count="9" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:0b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="0">
        <gpu dev="1" sm="90" rank="1">
          <nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:0c:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" latency="2.5" port="1" guid="0x1"/>
          <net name="unused" speed="1"/>
        </nic>
      </pci>
    </pci>
    <nic>
      <net name="eth0" dev="2" speed="-1"/>
    </nic>
  </cpu>
  <cpu host_hash="0x1" numaid="1" affinity="00000000,000000f0" arch="x86_64"
       vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:81:00.0" class="0x060400" link_speed="" link_width="16">
      <pci busid="0000:8a:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="2" sm="90" rank="2">
          <nvlink target="0000:f0:00.0" count="18" tclass="0x068000"/>
          <c2c bw="43125" count="8"/>
        </gpu>
      </pci>
      <pci busid="0000:8b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="3" sm="90" rank="3">
          <nvlink target="0000:f0:00.0" count="18" tclass="0x068000"/>
        </gpu>
      </pci>
    </pci>
    <pci busid="0000:f0:00.0" class="0x068000" link_speed="2.5 GT/s PCIe" link_width="1"/>
    <nic>
      <net name="eth0" dev="2" speed="-1"/>
    </nic>
    <something new="to us"><inside/></something>
  </cpu>
</system>
)";

}  // namespace tutti::testing
