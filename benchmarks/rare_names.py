"""Sentences with rare names of people, places, companies and medicines, in brackets, for `benchmarks.keywords`.

The parameters of keywords were chosen with CHOSEN_WITH. FRESH was first run after they were fixed.
"""

CHOSEN_WITH = """
Please send the report to [Thandiwe Mokoena] before Friday afternoon.
We met [Oisin Gallagher] at the station in the morning.
The new manager of the office is called [Aurelio Vantongeren].
My neighbour [Xanthippe Brolin] has two dogs and a garden.
Doctor [Szymborski] will see the patients after lunch.
The train to [Brzeziny] leaves at seven in the evening.
I would like to speak with [Ngozi Adeyemi] about the contract.
The company [Quivantis] has opened a factory in the north.
Our teacher [Ishaan Talwar] reads a story every day.
They bought a house near the old church in [Llanfairfechan].
The medicine [Zolpivera] should be taken twice a day.
Yesterday [Eirlys Pennarth] won the first prize in the race.
Can you tell [Mireille Castaneda] that the meeting has moved?
The river near [Tarrawonga] is very high this year.
A letter from [Vasiliki Doukas] arrived this morning.
The software [Kestrellio] runs on every computer in the building.
We will visit [Bartholomea Finch] and her family next week.
The captain of the team is [Dragoslav Petkovic].
She moved from [Ouagadara] to the city two years ago.
The bridge was built by [Cornelis Wijdeveld] a long time ago.
Please call [Siobhan Averill] when you get home.
The hotel in [Nakhodar] was full, so we slept in the car.
A painting by [Elisavet Morozini] was sold for a large sum.
The judge asked [Temperance Oduya] to answer the question.
My brother works for [Halvorsen Plc] in the south of the country.
The parcel for [Anneliese Trautwein] is still in the kitchen.
We asked [Kwabena Asante] to write a short speech.
The largest town in the valley is [Ystradgynlais].
My aunt [Philippa Zornheim] grows tomatoes behind the house.
Professor [Mukhopadhyay] has written a book about birds.
The ferry to [Skiathorpe] was late because of the wind.
You should talk to [Caoimhe Devlin] before you sign the paper.
The bank [Orvantia] closed three of its branches last month.
The driver [Tomasz Wierzbicki] knows every street in the city.
There is a small museum in the village of [Penmaenmawr].
The doctor gave her [Trexalonib] against the pain.
In the summer [Solveig Amundsen] swims in the lake.
Could you ask [Ximena Barrueto] for the key to the door?
The road to [Goondalee] was closed after the rain.
The book was sent to [Evangelos Pappas] by mistake.
All our files are stored with [Nimbustra] in the cloud.
The wedding of [Rosalind Okonedo] was on a Saturday.
The best player this season was [Zvonimir Radic].
He walked from [Marrakondo] to the coast in nine days.
The statue was made by [Lieselotte Brandvold] for the park.
Tell [Fionnuala Maguire] that the dinner is ready.
The plane to [Almetyarsk] leaves from the other gate.
The songs of [Thessaly Maravanos] are often on the radio.
The police officer thanked [Ignatius Wolfenden] for his help.
My sister is a lawyer at [Castellane Group] in the capital.
"""
FRESH = """
The lecture by [Bronagh Kilbride] begins at nine in the morning.
Have you read the new novel by [Obiora Nwankwo] about the war?
The gardens of [Machynlleth] are open until the end of October.
My cousin [Leocadia Brandt] sings in the choir of the school.
Judge [Papadimitriou] closed the case after two days.
We changed trains at [Oberstaufen] because of the snow.
The young pianist [Yevgenia Morozova] played without a mistake.
The insurance company [Veltranis] refused to pay for the damage.
Please give this envelope to [Thaddeus Okafor] at the front desk.
The old mill in [Pwllgwaun] was turned into a restaurant.
Patients who take [Ambrevoxil] should not drive a car.
The swimmer [Katarzyna Nowicka] broke the record by a second.
I borrowed the ladder from [Gruffydd Parry] across the street.
There was a fire near [Coonabarabran] last weekend.
The invitation came from [Stavroula Kanellis] and her husband.
The program [Fluxenbery] draws maps from pictures of the ground.
Every spring [Perpetua Lindqvist] paints the fence white.
The referee was [Bogdan Stoyanovich], who is known to be strict.
After the flood they left [Kinyamasika] and went to the hills.
The church organ was repaired by [Joachim Westerhoudt] himself.
Do not forget to thank [Aoibheann Tierney] for the flowers.
The night bus to [Szekesvar] was almost empty.
The portrait of [Immaculata Ferrante] hangs in the town hall.
Our lawyer [Balthazar Nkemelu] will read the contract again.
He sold his boat to [Pemberthy Marine] for a good price.
The nurse told [Zuleika Harmon] to drink more water.
A man called [Anselm Drabinsky] asked for you this afternoon.
The museum bought a letter that [Hroswitha Lang] wrote as a child.
The engineer [Tunde Bakare] explained how the pump works.
The cheese from [Vallombriga] is the best on the market.
Yesterday [Sunniva Haugland] missed her flight to the islands.
Ask the baker [Giacobbe Trentini] whether he has any bread left.
The mayor of [Zlatograd] opened the new bridge on Sunday.
The tablets are called [Cortivasine] and cost nine dollars.
In the evening [Mahmoud Elsherif] teaches mathematics to adults.
The dog belongs to [Winifred Tamblyn], who lives next door.
The second speaker was [Rajendra Bhattarai] from the university.
We took the wrong road at [Drumnadrochit] and lost an hour.
The factory of [Oskarvind] makes windows and doors.
My grandmother knew [Cosima Wallingford] when they were girls.
The violin was made by [Pellegrino Zanetti] in a small workshop.
The bakery belongs to [Nomvula Dlamini] and her two brothers.
The storm did great damage in [Quelimara] and on the coast.
The report by [Hjalmar Bergstrom] has more than ninety pages.
The customer [Philomena Adebayo] wants her money back.
We store all photographs on [Cirruvault] every night.
The winner of the chess game was [Vishwanath Iyer] again.
The actress [Delphine Arquette] learned to ride for the film.
The path from [Glenfarclas] to the lake is steep.
Tell the plumber [Wojciech Zielinski] that the tap still drips.
"""
