#!x
--[==[ c ]] ]==]
return { { ["port_id"] = [=[a]=], vlan = 0x1f, rx_police = .5e1; tx_police = "2" }, [7] = { port_id = 'b\065\x41\z 
\u{42}' }, nil, } ;