-- Begins a new epoch of a shard: numbers go on above everything that was ever used.
-- KEYS  1 meta · 2 stream · 3 lock · 4… views of tables that the database is ahead of: dropped
-- ARGV  1 epoch · 2 token of the lock · 3 epoch that was repaired for · 4 epoch that the shard had · 5 the highest number that it knew
--       6 the number that it goes on above · 7 up to where all of it is applied in the database · 8 the entry behind that
--       9 new generation ("": it stays) · 10 opening · 11 how many reservations were made · 12 r when it has lost some, or -
--       13… fields of tables that are dropped
-- Answers 1, or 0 when something changed meanwhile. A shard that has lost reservations takes no new ones until `rebuilt`, and stays locked.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'n', 'drained')
if ARGV[3] ~= ARGV[1] or (meta[1] or '') ~= ARGV[4] or redis.call('GET', KEYS[3]) ~= ARGV[2] then return 0 end
local last = 0
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
if newest[1] then last = tonumber(string.match(newest[1][1], '^(%d+)')) end
if math.max(tonumber(meta[2] or '0'), last) ~= tonumber(ARGV[5]) then return 0 end
-- At maxmemory a script may grow once it has written what cannot: this first one changes nothing.
redis.call('HDEL', KEYS[1], '')
for i = 4, #KEYS do redis.call('UNLINK', KEYS[i]) end
for i = 13, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
if tonumber(ARGV[7]) > tonumber(meta[3] or '0') then
  redis.call('HSET', KEYS[1], 'drained', ARGV[7])
  redis.call('XTRIM', KEYS[2], 'MINID', ARGV[8])
end
-- Tombstones that went with a dropped view are forgotten ones. A scan that begins from now on sees what they stood for.
if #KEYS > 3 then redis.call('HSET', KEYS[1], 'forgotten', ARGV[7]) end
redis.call('HSET', KEYS[1], 'n', ARGV[6], 'gap', ARGV[5], 'base', ARGV[6], 'reserved', ARGV[11], 'opening', ARGV[10], 'epoch', ARGV[1])
if ARGV[9] ~= '' then redis.call('HSET', KEYS[1], 'generation', ARGV[9]) end
if ARGV[12] == 'r' then
  redis.call('HSET', KEYS[1], 'rebuilding', ARGV[9])
else
  redis.call('HDEL', KEYS[1], 'rebuilding')
  redis.call('DEL', KEYS[3])
end
return 1
