-- The part of Lua that a script can use: computation only. It has no functions that read files,
-- load code, access other interpreter states, or run in C for long.
--
-- A hook stops a script that does not return. LuaJIT checks for hooks between instructions and in
-- loops of traces, but not in C. Functions that can run longer in C than it takes to read their
-- arguments are therefore written in Lua here: patterns (exponential time) and `table.sort`.

local patterns, notice, allowed = ...
local error, pairs, pcall, select = error, pairs, pcall, select
local tostring, type = tostring, type
local string = string
local format, concat, unpack = string.format, table.concat, unpack

-- `string.format` would call `__tostring` from C, and so nest C calls; convert tables before.
function string.format(text, ...)
  local n = select("#", ...)
  for at = 1, n do
    if type((select(at, ...))) == "table" then
      local values = { ... }
      for i = at, n do
        if type(values[i]) == "table" then values[i] = tostring(values[i]) end
      end
      return format(text, unpack(values, 1, n))
    end
  end
  return format(text, ...)
end

for name, made in pairs(patterns) do
  string[name] = made
end
string.gfind, string.dump = nil, nil

local function is_less(a, b)
  return a < b
end

-- Heap sort: sorts in place, and its running time does not depend on the initial order.
function table.sort(t, before)
  if before ~= nil and type(before) ~= "function" then
    error("table.sort: the order must be a function", 2)
  end
  before = before or is_less
  local n = #t
  local function sift(at, last)
    local value = t[at]
    while true do
      local child = 2 * at
      if child > last then break end
      if child < last and before(t[child], t[child + 1]) then child = child + 1 end
      if not before(value, t[child]) then break end
      t[at] = t[child]
      at = child
    end
    t[at] = value
  end
  for at = math.floor(n / 2), 1, -1 do sift(at, n) end
  for last = n, 2, -1 do
    t[1], t[last] = t[last], t[1]
    sift(1, last - 1)
  end
end

-- Deepest nesting of `pcall`; each level uses memory of the worker's own stack.
local NESTED_MAX = 100
local nested = 0

local function leave(...)
  nested = nested - 1
  return ...
end

local function protected(...)
  if nested >= NESTED_MAX then error("pcall: nested too deeply", 2) end
  nested = nested + 1
  return leave(pcall(...))
end

-- Calls the handler after unwinding. During the error it would run where no hook can stop it.
local function after(handler, is_well, ...)
  if is_well then return true, ... end
  local _, value = protected(handler, (...))
  return false, value
end

local function xpcall(f, handler, ...)
  return after(handler, protected(f, ...))
end

local function print(...)
  local words = {}
  for at = 1, select("#", ...) do
    words[at] = tostring((select(at, ...)))
  end
  notice(concat(words, "\t"))
end

local function whole_copy_of(t)
  local copy = {}
  for key, value in pairs(t) do copy[key] = value end
  return copy
end

local function copy_of(library, names)
  local t = {}
  for name in names:gmatch("%a+") do t[name] = library[name] end
  return t
end

local basic = {}
for name in (
  "assert error getmetatable ipairs next pairs rawequal rawget rawset select setmetatable "
  .. "tonumber tostring type unpack _VERSION"
):gmatch("[%a_]+") do
  basic[name] = _G[name]
end
local globals = _G
getmetatable("").__metatable = false
-- The table in which methods of strings are found, before any script could change it.
local strings = whole_copy_of(string)

-- Makes the globals of a script; each load of a script gets new ones.
return function(api)
  for name in pairs(whole_copy_of(string)) do string[name] = nil end
  for name, value in pairs(strings) do string[name] = value end
  -- A script that was stopped may have left a value above 0.
  nested = 0
  local t = { print = print, pcall = protected, xpcall = xpcall }
  for name, value in pairs(basic) do t[name] = value end
  t._G = t
  t.string = string
  t.math = copy_of(globals.math, "abs acos asin atan atan ceil cos cosh deg exp floor fmod frexp "
    .. "huge ldexp log max min modf pi pow rad random randomseed sin sinh sqrt tan tanh")
  t.table = copy_of(globals.table, "concat insert maxn remove sort")
  t.bit = copy_of(globals.bit, "arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex")
  for name, value in pairs(api) do t[name] = whole_copy_of(value) end
  for name, value in pairs(allowed) do t[name] = value end
  -- Modules under the names that Snabb's apps require.
  local modules = {
    ["core.app"] = t.engine, ["core.link"] = t.link, ["core.packet"] = t.packet,
    ["core.counter"] = t.counter, bit = t.bit, string = t.string, math = t.math, table = t.table,
  }
  for name, value in pairs(allowed) do modules[name] = value end
  function t.require(name)
    local found = modules[name]
    if not found then error("there is no module " .. tostring(name), 2) end
    return found
  end
  return t
end
