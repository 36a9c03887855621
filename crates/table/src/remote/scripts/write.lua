-- One change of one row: the row, its queue entry, counters, order and (outside a cluster) unique values, or nothing. Every argument costs the server
-- time, and every long string that is made of others more: there are no more of them than a change needs.
-- KEYS  1 meta · 2 stream · 3 rows, then what is needed of: deleted (d), order (o), fences (t), then one for each counter, claim and release
-- ARGV  1 epoch · 2 loaded field · 3 control · 4 key · 5, 6 field and value of the queue entry: of a put what stands before the row in a record, and the row; of a delete
--       'r' and the record · then what is needed of: the head that is expected (h), the attempt's token (t), then in this order for each
--       generation: field, value, field of the newest reservation, its number · counter: fingerprint, delta · claim: fingerprint · release: fingerprint
-- control: bytes p (put) or d (delete) · f (refused when full) or - · o (ordered) or - · expected: a (absent), y (anything) or h (a head) · t (a token)
--       or - · how many generations, counters, claims, releases, 2 bytes little-endian each
-- Answers the version, or { why, detail… }.
-- What is given to a command as a number is printed with 17 digits first: '1' is cheaper than 1.
local call = redis.call
local meta = call('HMGET', KEYS[1], 'epoch', ARGV[2], 'full')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
if not meta[2] then return redis.error_reply('NOTLOADED the shard is not loaded') end
local kind, grows, order, expect, fence, generations, counters, claims, releases =
  struct.unpack('<c1c1c1c1c1I2I2I2I2', ARGV[3])
if meta[3] and grows == 'f' then return { 'full' } end
local key, at, next_key = ARGV[4], 7, 4
local head, deleted_key, order_key
if expect == 'h' then head, at = ARGV[at], at + 1 end
if kind == 'd' then deleted_key, next_key = KEYS[next_key], next_key + 1 end
if order == 'o' then order_key, next_key = KEYS[next_key], next_key + 1 end
if fence == 't' then
  if call('HEXISTS', KEYS[next_key], ARGV[at] .. key) == 1 then return { 'fenced' } end
  at, next_key = at + 1, next_key + 1
end
local noted = {}
for _ = 1, generations do
  local known = call('HMGET', KEYS[1], ARGV[at], ARGV[at + 2])
  if (known[1] or '') ~= ARGV[at + 1] then return { 'fenced' } end
  if tonumber(ARGV[at + 3]) > tonumber(known[2] or '0') then noted[#noted + 1] = at + 2 end
  at = at + 4
end
local counter_key, counter_at = next_key - 1, at
local claim_key, claim_at = counter_key + counters, counter_at + 2 * counters - 1
local release_key, release_at = claim_key + claims, claim_at + claims
local version

-- A new row, which is what most writes are: its places are taken as they are looked at, and given back when one of them was not free.
if expect == 'a' then
  version = call('HINCRBY', KEYS[1], 'n', '1')
  local value = struct.pack('<BI7', 0, version) .. ARGV[6]
  if call('HSETNX', KEYS[3], key, value) == 0 then
    call('HINCRBY', KEYS[1], 'n', '-1')
    return { 'changed', call('HGET', KEYS[3], key) }
  end
  local reservation, before, refused, taken = struct.pack('<I8', version) .. key, {}, nil, 0
  while taken < claims and not refused do
    local values, claim = KEYS[claim_key + taken + 1], ARGV[claim_at + taken + 1]
    if call('HSETNX', values, claim, reservation) == 0 then
      local holder = call('HGET', values, claim)
      if string.sub(holder, 9) == key then
        call('HSET', values, claim, reservation)
        before[taken + 1] = holder
      else
        refused = { 'taken', taken, holder }
      end
    end
    if not refused then taken = taken + 1 end
  end
  if not refused then
    local queued = redis.pcall('XADD', KEYS[2], string.format('%d-0', version), ARGV[5], value)
    if queued.err then refused = queued end
  end
  if refused then
    for i = 1, taken do
      local values, claim = KEYS[claim_key + i], ARGV[claim_at + i]
      if before[i] then call('HSET', values, claim, before[i]) else call('HDEL', values, claim) end
    end
    call('HDEL', KEYS[3], key)
    call('HINCRBY', KEYS[1], 'n', '-1')
    return refused
  end
else
  if expect == 'h' then
    local found = call('HGET', KEYS[3], key)
    if not found then return { 'changed' } end
    if string.sub(found, 1, 8) ~= head then return { 'changed', found } end
  end
  for i = 1, claims do
    local holder = call('HGET', KEYS[claim_key + i], ARGV[claim_at + i])
    if holder and string.sub(holder, 9) ~= key then return { 'taken', i - 1, holder } end
  end
  version = call('HINCRBY', KEYS[1], 'n', '1')
  local value = kind == 'p' and struct.pack('<BI7', 0, version) .. ARGV[6] or ARGV[6]
  call('XADD', KEYS[2], string.format('%d-0', version), ARGV[5], value)
  if kind == 'p' then
    call('HSET', KEYS[3], key, value)
  else
    call('HDEL', KEYS[3], key)
    call('ZADD', deleted_key, string.format('%d', version), key)
  end
  for i = 1, claims do
    call('HSET', KEYS[claim_key + i], ARGV[claim_at + i], struct.pack('<I8', version) .. key)
  end
end
-- On which reservations of other shards this one's rows rely, should those shards lose some (see `unique`).
for _, note in ipairs(noted) do call('HSET', KEYS[1], ARGV[note], ARGV[note + 1]) end
if order_key then
  if kind == 'p' then call('ZADD', order_key, '0', key) else call('ZREM', order_key, key) end
end
for i = 1, counters do
  local value, delta = ARGV[counter_at + 2 * i - 2], ARGV[counter_at + 2 * i - 1]
  if call('HINCRBY', KEYS[counter_key + i], value, delta) <= 0 then
    call('HDEL', KEYS[counter_key + i], value)
  end
end
for i = 1, releases do
  local values, value = KEYS[release_key + i], ARGV[release_at + i]
  local holder = call('HGET', values, value)
  if holder and string.sub(holder, 9) == key then call('HDEL', values, value) end
end
return version
