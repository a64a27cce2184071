// little_machine.hpp: an invented machine as hwloc writes it: two packages of two cores, two GPUs
// on an NVSwitch, one InfiniBand NIC, a screen, a disk, and a USB controller that nobody needs.
#pragma once

namespace tutti::testing {

inline constexpr const char* kLittleMachineXml = R"xml(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0xf" complete_cpuset="0xf"
      nodeset="0x3" complete_nodeset="0x3"
      allowed_cpuset="0x0000000f" allowed_nodeset="0x00000003" gp_index="35">
  <info name="HostName" value="little"/>
  <info name="OSName" value="Linux"/>
  <object type="Package" os_index="0" cpuset="0x3" complete_cpuset="0x3"
      nodeset="0x1" complete_nodeset="0x1" gp_index="17">
   <info name="CPUModel" value="Little Chip  "/>
   <object type="NUMANode" os_index="0" cpuset="0x3" complete_cpuset="0x3"
      nodeset="0x1" complete_nodeset="0x1" gp_index="18" local_memory="1073741824"/>
   <object type="L3Cache" cpuset="0x3" complete_cpuset="0x3"
      nodeset="0x1" complete_nodeset="0x1" gp_index="19"
      cache_size="16777216" depth="3" cache_linesize="64" cache_associativity="0" cache_type="0">
    <object type="L2Cache" cpuset="0x1" complete_cpuset="0x1"
      nodeset="0x1" complete_nodeset="0x1" gp_index="20"
      cache_size="1048576" depth="2" cache_linesize="64" cache_associativity="0" cache_type="0">
     <object type="Core" os_index="0" cpuset="0x1" complete_cpuset="0x1"
      nodeset="0x1" complete_nodeset="0x1" gp_index="21">
      <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1"
      nodeset="0x1" complete_nodeset="0x1" gp_index="22"/></object>
    </object>
    <object type="L2Cache" cpuset="0x2" complete_cpuset="0x2"
      nodeset="0x1" complete_nodeset="0x1" gp_index="23"
      cache_size="1048576" depth="2" cache_linesize="64" cache_associativity="0" cache_type="0">
     <object type="Core" os_index="1" cpuset="0x2" complete_cpuset="0x2"
      nodeset="0x1" complete_nodeset="0x1" gp_index="24">
      <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2"
      nodeset="0x1" complete_nodeset="0x1" gp_index="25"/></object>
    </object>
   </object>
   <object type="Bridge" gp_index="5" bridge_type="0-1" depth="0"
      bridge_pci="0000:[00-0f]">
    <object type="Bridge" gp_index="4" bridge_type="1-1" depth="1"
      bridge_pci="0000:[01-0f]"
      pci_busid="0000:00:01.0" pci_type="0604 [8086:0001] [0000:0000] 00"
      pci_link_speed="15.753846">
     <object type="PCIDev" gp_index="1"
      pci_busid="0000:01:00.0" pci_type="0302 [10de:2330] [0000:0000] 00"
      pci_link_speed="15.753846">
      <object type="OSDev" gp_index="101" name="nvml0" osdev_type="1"/>
     </object>
     <object type="PCIDev" gp_index="2"
      pci_busid="0000:02:00.0" pci_type="0302 [10de:2330] [0000:0000] 00"
      pci_link_speed="0.000000">
      <object type="OSDev" gp_index="102" name="nvml1" osdev_type="1"/>
     </object>
     <object type="PCIDev" gp_index="3" subtype="NVSwitch"
      pci_busid="0000:03:00.0" pci_type="0680 [10de:22a3] [0000:0000] 00"
      pci_link_speed="2.0">
     </object>
    </object>
   </object>
  </object>
  <object type="Package" os_index="1" cpuset="0xc" complete_cpuset="0xc"
      nodeset="0x2" complete_nodeset="0x2" gp_index="26">
   <info name="CPUModel" value="Little Chip  "/>
   <object type="NUMANode" os_index="1" cpuset="0xc" complete_cpuset="0xc"
      nodeset="0x2" complete_nodeset="0x2" gp_index="27" local_memory="1073741824"/>
   <object type="L3Cache" cpuset="0xc" complete_cpuset="0xc"
      nodeset="0x2" complete_nodeset="0x2" gp_index="28"
      cache_size="16777216" depth="3" cache_linesize="64" cache_associativity="0" cache_type="0">
    <object type="L2Cache" cpuset="0x4" complete_cpuset="0x4"
      nodeset="0x2" complete_nodeset="0x2" gp_index="29"
      cache_size="1048576" depth="2" cache_linesize="64" cache_associativity="0" cache_type="0">
     <object type="Core" os_index="0" cpuset="0x4" complete_cpuset="0x4"
      nodeset="0x2" complete_nodeset="0x2" gp_index="30">
      <object type="PU" os_index="2" cpuset="0x4" complete_cpuset="0x4"
      nodeset="0x2" complete_nodeset="0x2" gp_index="31"/></object>
    </object>
    <object type="L2Cache" cpuset="0x8" complete_cpuset="0x8"
      nodeset="0x2" complete_nodeset="0x2" gp_index="32"
      cache_size="1048576" depth="2" cache_linesize="64" cache_associativity="0" cache_type="0">
     <object type="Core" os_index="1" cpuset="0x8" complete_cpuset="0x8"
      nodeset="0x2" complete_nodeset="0x2" gp_index="33">
      <object type="PU" os_index="3" cpuset="0x8" complete_cpuset="0x8"
      nodeset="0x2" complete_nodeset="0x2" gp_index="34"/></object>
    </object>
   </object>
   <object type="Bridge" gp_index="16" bridge_type="0-1" depth="0"
      bridge_pci="0001:[00-0f]">
    <object type="Bridge" gp_index="13" bridge_type="1-1" depth="1"
      bridge_pci="0001:[01-0f]"
      pci_busid="0001:00:01.0" pci_type="0604 [8086:0001] [0000:0000] 00"
      pci_link_speed="31.507692">
     <object type="PCIDev" gp_index="8"
      pci_busid="0001:01:00.0" pci_type="0207 [15b3:1021] [0000:0000] 00"
      pci_link_speed="31.507692">
      <object type="OSDev" gp_index="6" name="ib0" osdev_type="2"/>
      <object type="OSDev" gp_index="7" name="mlx5_0" osdev_type="3"/>
     </object>
     <object type="PCIDev" gp_index="10"
      pci_busid="0001:02:00.0" pci_type="0300 [1a03:2000] [0000:0000] 00"
      pci_link_speed="0.000000">
      <object type="OSDev" gp_index="9" name="card0" osdev_type="1"/>
     </object>
     <object type="PCIDev" gp_index="12"
      pci_busid="0001:03:00.0" pci_type="0108 [144d:a808] [0000:0000] 00"
      pci_link_speed="3.938462">
      <object type="OSDev" gp_index="11" name="nvme0n1" osdev_type="0"/>
     </object>
    </object>
    <object type="Bridge" gp_index="15" bridge_type="1-1" depth="1"
      bridge_pci="0001:[01-0f]"
      pci_busid="0001:00:02.0" pci_type="0604 [8086:0001] [0000:0000] 00"
      pci_link_speed="1.0">
     <object type="PCIDev" gp_index="14"
      pci_busid="0001:04:00.0" pci_type="0c03 [8086:0002] [0000:0000] 00"
      pci_link_speed="1.0">
     </object>
    </object>
   </object>
  </object>
 </object>
 <distances2hetero nbobjs="3" kind="25" name="NVLinkBandwidth">
  <indexes length="29">OSDev:101 OSDev:102 PCIDev:3 </indexes>
  <u64values length="56">1000000 0 450000 0 1000000 450000 450000 450000 1000000 </u64values>
 </distances2hetero>
</topology>
)xml";

}  // namespace tutti::testing
