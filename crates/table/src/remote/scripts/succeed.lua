-- Has a table go on with other columns in one shard: what memory has of it under any id is of another time, and goes.
-- KEYS  1 meta · 2 stream · 3… views and reservations of the table, by every id
-- ARGV  1 epoch · 2 field of the present id · 3 the id that is to be present · 4… loaded fields of every id
-- Answers 1. Where the id is present, nothing happens.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2])
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
if meta[2] and string.match(meta[2], '^%d+') == ARGV[3] then return 1 end
local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
local last = newest[1] and string.match(newest[1][1], '^%d+') or '0'
-- At maxmemory a script may grow once it has written what cannot: this first one changes nothing.
redis.call('HDEL', KEYS[1], '')
for i = 4, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3] .. ' ' .. last)
return 1
