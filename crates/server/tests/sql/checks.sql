create table a (v int check (v >= 0))
insert into a values (1), (-1)
insert into a values (null)
insert into a values (0), (7)
update a set v = v - 1
update a set v = v - 1 where v = 7
update a set v = -v where v = 6
update a set v = null where v = 0
select * from a order by v
create table b (v int check (v >= 0) check (v < 100), w int, check (v < w), check (w > 1), constraint named check (w < 1000), check (1 > 0))
insert into b values (200, 0)
insert into b values (200, null)
insert into b values (-1, null)
insert into b values (null, 1)
insert into b values (5, 1000)
insert into b values (5, 999) returning v, w
insert into b select i, i + 1 from generate_series(1, 3) i
insert into b select i, i from generate_series(1, 3) i
update b set w = v
update b set w = w + 1, v = v + 1
update b set w = 0 where v = 2 returning *
update b set v = -1, w = 5000 where v = 2
select * from b order by v
create table naming (v int constraint a_v_check check (v >= 0), w int check (w <> v))
insert into naming values (-1, 1)
insert into naming values (1, 1)
create table n2 (v int, check (v > 1), w int check (v < 50), check (v < 40), constraint n2_check check (v < w), check (w > v + 1))
insert into n2 values (0, 9)
insert into n2 values (50, 9)
insert into n2 values (45, 9)
insert into n2 values (9, 9)
insert into n2 values (9, 10)
create table n3 (v int check (v > 1), constraint n3_v_check check (v < 50))
create table n3 (v int constraint x check (v > 0), constraint x check (v < 9))
create table n3 (v int constraint x check (v > 0), w int constraint x check (w < 9))
create table n3 (v int, constraint n3_v_check check (v > 1), check (v < 5), constraint n3_v_check1 unique (v))
create table n3 (v int constraint dd primary key constraint dd check (v > 1))
create table n3 (v int constraint n3_pkey check (v > 1) primary key, w int constraint n3_w_key check (w > 1) unique)
insert into n3 values (1, 2)
insert into n3 values (2, 1)
insert into n3 values (2, 2)
insert into n3 values (2, 3)
insert into n3 values (3, 2)
create table n4 (v int constraint n5_v_check check (v > 1))
create table n5 (v int check (v > 1))
insert into n5 values (1)
create table a_table_with_a_very_long_name_of_60_characters_________ (a_column_with_a_very_long_name_of_60_characters_______ int check (a_column_with_a_very_long_name_of_60_characters_______ > 0))
insert into a_table_with_a_very_long_name_of_60_characters_________ values (0)
create table a_table_with_a_very_long_name_of_60_characters_________2 (a int check (a > 0), b int check (a > b))
insert into a_table_with_a_very_long_name_of_60_characters_________2 values (0, -1)
insert into a_table_with_a_very_long_name_of_60_characters_________2 values (1, 1)
create table "Größe ÄÖÜäöüß ÄÖÜäöüß ÄÖÜäöüß" ("Länge ÄÖÜäöüß ÄÖÜäöüß" int check ("Länge ÄÖÜäöüß ÄÖÜäöüß" > 0))
insert into "Größe ÄÖÜäöüß ÄÖÜäöüß ÄÖÜäöüß" values (0)
create table d (v int check (v >= x))
create table d (v int check (v >= vv), w int)
create table d (v int check (v))
create table d (v int check (v + 1))
create table d (v int check (sum(v) > 1))
create table d (v int check (1 < count(*)))
create table d (v int check (v > (select 1)))
create table d (v int check (exists (select 1)))
create table d (v int check (v in (select 1)))
create table d (v int check (v not in (select 1)))
create table d (v int check (v + 1 = (select 1)))
create table d (v int check (not exists (select 1)))
create table d (v int check (e.v > 0))
create table d (v int check (v > 'x'))
create table d (v int check ('maybe'))
create table d (v int check (xyz(v)))
create table d (v int check (v > generate_series(1, 2)))
create table d (v int check (v || 1))
create table d (v int check (v > 0) deferrable)
create table d (v int check (v > 0) not deferrable)
create table d (v int, check (v > 0) deferrable)
create table d (v int, check (v > 0) initially deferred)
create table d (v int check (v > 0, v < 5))
create table d (v int check v > 0)
create table d (v int check ())
create table d (v int check (v > 0) not enforced)
create table d (v int check (v > $1))
create table d (v int, check (w > 0))
create table d (v int primary key, v int, check (w > 0))
create table e1 (v int check (null))
insert into e1 values (1)
create table e2 (v int check ('true'), check (false))
insert into e2 values (1)
create table e3 (v int, check (v > 0) no inherit, check (v > 1) not valid, check (v > 2) not deferrable initially immediate, check (v > 3) initially immediate no inherit)
insert into e3 values (1)
insert into e3 values (2)
insert into e3 values (3)
insert into e3 values (4)
create table e4 (v int check (e4.v > 0), w text check (public.e4.w <> ''))
insert into e4 values (0, 'x')
insert into e4 values (1, '')
insert into e4 values (1, 'x')
create table e5 (v int primary key check (v > 0) unique check (v < 5) default 7 not null)
insert into e5 values (default)
insert into e5 values (null)
insert into e5 values (0)
insert into e5 values (4)
insert into e5 values (4)
update e5 set v = 5
update e5 set v = null
update e5 set v = 3
create table e6 (v int check (100 / v > 9), w int check (w in (1, 2, 3)), t text check (t like 'a%' and length(t) < 5), f float8 check (f between -1.5 and 1.5), d date check (d > '2020-02-29'), z bool check (z), c char(3) check (c <> 'x'), ts timestamptz check (ts < '2021-01-01 00:00:00+00'))
insert into e6 (v) values (0)
insert into e6 (v) values (11)
insert into e6 (w) values (4)
insert into e6 (t) values ('b')
insert into e6 (t) values ('abcde')
insert into e6 (f) values (1.6)
insert into e6 (f) values ('nan')
insert into e6 (d) values ('2020-02-29')
insert into e6 (z) values (false)
insert into e6 (c) values ('x')
insert into e6 (ts) values ('2021-01-01 00:00:00+00')
insert into e6 values (10, 3, 'abcd', -1.5, '2020-03-01', true, 'y', '2020-01-01 00:00:00+00')
update e6 set v = 0
update e6 set t = t || 'e'
update e6 set t = 'a' || repeat('b', 100)
update e6 set z = not z, w = 9
select * from e6
create table e7 (v int check (case when v < 0 then false when v > 9 then null else true end), w int check (coalesce(w, v) > 3), x int check (nullif(x, 5) is not null))
insert into e7 values (-1, 4, 1)
insert into e7 values (10, 3, 1)
insert into e7 values (10, null, 1)
insert into e7 values (3, null, 1)
insert into e7 values (4, null, 5)
insert into e7 values (4, null, null)
create table e8 (v int check (v < random()), w timestamptz check (w < now()))
insert into e8 values (2, null)
insert into e8 values (0, '2200-01-01 00:00:00+00')
insert into e8 values (-1, '2000-01-01 00:00:00+00') on conflict do nothing
update e8 set v = 3 where w < now()
update e8 set v = -7
create table k (id int primary key, v int not null check (v > 0), u int unique)
insert into k values (1, 1, 1)
insert into k values (null, 0, 1)
insert into k values (1, 0, 1)
insert into k values (1, 0, 1) on conflict do nothing
insert into k values (1, 1, 1) on conflict do nothing
insert into k values (2, 1, 1)
update k set id = 3, v = 0
update k set id = 3, v = 2, u = 3
update k set id = id + 1, v = null
update k set u = u - 9 returning *
begin
update k set v = v - 2 where id = 3
rollback
begin
savepoint s
update k set v = v - 2 where id = 3
rollback to s
update k set v = v - 1 where id = 3
commit
select * from k
prepare take as update k set v = v - $1 where id = $2
execute take (1, 3)
execute take (-5, 3)
execute take (6, 3)
execute take (5, 3)
execute take (null, 3)
select * from k
create table mv (a int, b int, v int check (v > 0), primary key (a, b)) distributed by (b)
insert into mv values (1, 1, 1), (2, 2, 2)
update mv set b = b + 1, v = v - 1
update mv set b = b + 1, v = v + 1
update mv set a = a + 10, v = 0 where a = 2
select * from mv order by a
alter table mv add check (v > 2)
alter table mv add check (v > 1)
alter table mv add check (v < 100)
alter table mv add constraint mv_v_check check (v < 100)
alter table mv add constraint mv_pkey check (v < 100)
alter table mv add constraint bounds check (v < b * 100)
alter table mv add constraint bounds check (v < 5)
alter table mv add check (v < nothing)
alter table mv add check (v)
alter table mv add check (v > (select 1))
alter table mv add check (count(*) > 1)
alter table mv add check (v < 7) deferrable
alter table mv add check (v < 7) no inherit
alter table nothing add check (v > 1)
alter table if exists nothing add check (v > 1)
insert into mv values (5, 5, 1)
insert into mv values (5, 0, 2)
insert into mv values (5, 5, 7)
insert into mv values (5, 5, 2)
begin
alter table mv add constraint short check (a < 5)
rollback
begin
delete from mv where a = 5
alter table mv add constraint short check (a < 5)
insert into mv values (6, 6, 2)
rollback
insert into mv values (6, 6, 2)
create table plain (v int check (v > 0), w int)
insert into plain values (1, 1)
alter table plain add primary key (v)
insert into plain values (0, 1)
update plain set v = 0
truncate plain
insert into plain values (0, 1)
alter table plain add check (w > 0)
insert into plain values (5, 0)
create table pk (v int constraint pk_pkey check (v > 0))
alter table pk add constraint pk_pkey primary key (v)
alter table pk add primary key (v)
insert into pk values (1), (1)
drop table a
create table a (v int)
insert into a values (-1)
create table if not exists a (v int check (v > 0))
insert into a values (-2)
copy b from stdin <- 7\t8\n
select * from b where v = 7
alter table b add constraint later check (v < 7) not valid--refused
create table acts (v int check (pg_terminate_backend(v)))--refused
create table zoned (id int primary key, at timestamptz default '2020-01-01 00:00', check (at >= '2020-01-01 00:00'), check (at <> '2021-01-01'::text::timestamptz))
set time zone 'Asia/Tokyo'
insert into zoned (id) values (1) returning at
insert into zoned values (2, '2020-01-01 08:00')
insert into zoned values (3, '2021-01-01 00:00')
alter table zoned add constraint late check (at < case id when 4 then timestamptz '2022-01-01' else '2023-01-01' end)
reset time zone
insert into zoned values (3, '2021-01-01 00:00')
insert into zoned values (4, '2021-12-31 14:00')
insert into zoned values (4, '2021-12-31 16:00')
insert into zoned values (5, '2021-12-31 16:00')
insert into zoned values (6, '2022-12-31 16:00')
alter table zoned add check (at > '2020-01-01 00:00')
alter table zoned add check (at in ('2020-01-01 00:00', '2021-12-31 14:00', '2021-12-31 16:00'))
select * from zoned order by id
create table place (lat float8 check (lat>=-90 and lat<=90), lon float8 check (lon<>-lat))
insert into place values (-91, 0)
insert into place values (0, 0)
insert into place values (-90, 1) returning lat>-lon
