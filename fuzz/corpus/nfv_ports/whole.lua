-- Written by a tool
return {
  {
    port_id = "0f3f2a4e-9c1d-4d2f-8a55-5a0d6f1b2c3d",
    mac_address = "52:54:00:01:02:03",
    vlan = 42,
    ingress_filter = [[tcp dst port 80 or icmp]],
    egress_filter = "not udp",
    stateful_filter = true,
    rx_police = 1.5,
    tx_police_gbps = 10,
    disable_mrg_rxbuf = true,
    disable_indirect_desc = true,
    tunnel = {
      type = "L2TPv3",
      local_ip = "2001:db8::1", remote_ip = "2001:db8::2",
      next_hop = "2001:db8::3",
      local_cookie = "00 11 22 33 44 55 66 77",
      remote_cookie = "8899aabbccddeeff",
      session = 7;
    },
    crypto = {
      type = "esp-aes-128-gcm", spi = 0x100, auditing = true,
      transmit_key = "000102030405060708090a0b0c0d0e0f", transmit_salt = "00010203",
      receive_key = "0f0e0d0c0b0a09080706050403020100", receive_salt = "03020100",
    },
  },
  { port_id = "other", vlan = 0, ingress_filter = nil },
}
