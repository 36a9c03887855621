-- Begins a new epoch of a shard: numbers go on above everything that was ever used.
-- KEYS  1 meta · 2 stream · 3 lock · 4… everything that is a view of the database: dropped when it is behind it
-- ARGV  1 epoch · 2 token of the lock · 3 epoch that was repaired for · 4 epoch that the shard had · 5 position in the
--       database · 6 up to where all of it is applied there · 7 the entry behind that · 8 how far the numbers jump
--       9 new generation ("": it stays)
-- Answers { 1, the view was dropped: 1 or 0 }, or { 0 } when something changed meanwhile.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'n', 'drained')
if ARGV[3] ~= ARGV[1] or (meta[1] or '') ~= ARGV[4] or redis.call('GET', KEYS[3]) ~= ARGV[2] then return { 0 } end
local last = 0
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
if newest[1] then last = tonumber(string.match(newest[1][1], '^(%d+)')) end
local known = math.max(tonumber(meta[2] or '0'), last)
local position = tonumber(ARGV[5])
local is_behind = position > known
-- At maxmemory a script may grow once it has written what cannot: this first one changes nothing.
redis.call('HDEL', KEYS[1], '')
if is_behind then
  for i = 4, #KEYS do redis.call('UNLINK', KEYS[i]) end
  local fields = redis.call('HKEYS', KEYS[1])
  for i = 1, #fields do
    if string.sub(fields[i], 1, 1) == 'L' then redis.call('HDEL', KEYS[1], fields[i]) end
  end
end
if tonumber(ARGV[6]) > tonumber(meta[3] or '0') then
  redis.call('HSET', KEYS[1], 'drained', ARGV[6])
  redis.call('XTRIM', KEYS[2], 'MINID', ARGV[7])
end
-- Tombstones that went with the dropped view are forgotten ones. A scan that begins from now on sees what they stood for.
if is_behind then redis.call('HSET', KEYS[1], 'forgotten', ARGV[6]) end
local next = math.max(known, position) + tonumber(ARGV[8])
redis.call('HSET', KEYS[1], 'n', string.format('%.0f', next), 'gap', string.format('%.0f', known), 'epoch', ARGV[1])
if ARGV[9] ~= '' then redis.call('HSET', KEYS[1], 'generation', ARGV[9]) end
redis.call('DEL', KEYS[3])
return { 1, is_behind and 1 or 0 }
